"""An editor of a tiny random model: everything is real but the model's wit."""

from __future__ import annotations

import torch
from tiny_models import SHAPE
from tiny_tokenizers import byte_level_tokenizer

from lookahead_edit.config import TargetConfig
from lookahead_edit.editor import Editor
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import HfTokenizer

MAX_PREFIX_CACHE_BYTES = 2**20


def tiny_editor() -> Editor:
    """A Llama of byte-level tokens, 4,096 tokens of context, that reads prompts in chunks of 64."""
    import transformers as hf

    torch.manual_seed(0)
    config = hf.LlamaConfig(**(SHAPE | {"vocab_size": 300, "pad_token_id": None}), max_position_embeddings=4096)
    model = hf.LlamaForCausalLM(config)
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=1.0)
    model.generation_config = hf.GenerationConfig(bos_token_id=1, pad_token_id=0)
    target_config = TargetConfig(prefill_chunk_tokens=64, max_prefix_cache_bytes=MAX_PREFIX_CACHE_BYTES)
    return Editor(HfTarget(model.eval(), target_config), HfTokenizer(byte_level_tokenizer()))
