"""The benchmark's methods that draft with a model: transformers' own and ours, all with plain decoding's tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from tiny_models import SHAPE

from benchmarks.methods import Task, decode_plainly, draft_model_methods
from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.targets.draft_model import model_drafter_factory
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import ByteTokenizer


def all_bytes_model(seed: int, num_layers: int) -> Any:
    torch.manual_seed(seed)
    shape = SHAPE | {"vocab_size": 260, "num_hidden_layers": num_layers}
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**shape)).eval()
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=1.0)
    model.generation_config = hf.GenerationConfig(bos_token_id=1, pad_token_id=0)
    return model


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("method", ["assisted", "early_exit", "model", "combined"])
def test_methods_that_draft_with_a_model_emit_plain_decodings_tokens(method: str) -> None:
    target, draft = all_bytes_model(1, 3), all_bytes_model(2, 1)
    editor = Editor(HfTarget(target), ByteTokenizer(), drafters=model_drafter_factory(draft, target))
    request = EditRequest("SUM = 0\nPUT(SUM)\n", "RENAME SUM.", max_tokens=30)
    task = Task(request, editor.prompt_tokens(request))
    methods = draft_model_methods(draft, num_draft_tokens=4, num_early_layers=1)
    assert methods[method](editor, task) == decode_plainly(editor, task)
