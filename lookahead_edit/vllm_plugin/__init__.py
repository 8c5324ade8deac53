"""vLLM with our drafter: the proposer that runs inside the engine, and the editor in front of one.

Switch the proposer on with one option of `vllm serve` or `vllm.LLM`; docs/vllm.md has the rest::

    vllm serve MODEL --speculative-config \
      '{"method": "custom_class", "model": "lookahead_edit.vllm_plugin.EditProposer", "num_speculative_tokens": 64}'

Importing this package imports nothing of vLLM.
"""

from __future__ import annotations

from lookahead_edit.vllm_plugin.proposer import EditProposer

__all__ = ["EditProposer"]
