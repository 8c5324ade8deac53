"""Real tokenizers of transformers, small enough to be made on the spot: byte-level BPE, and SentencePiece's way."""

from __future__ import annotations

from typing import Any

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRIPPING = CHATML.replace("message['content']", "message['content'] | trim")
_CORPUS = [
    "def add(first, second):\n    return first + second\n",
    "total = price * count\n    # the total\n",
    "```python\n",
]


def byte_level_tokenizer(chat_template: str | None = CHATML) -> Any:
    """As GPT-2's and SmolLM2's: bytes, merges learned from three snippets, ChatML's markers as special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=chat_template,
    )


def sentencepiece_tokenizer() -> Any:
    """As Llama 2's: blanks become ▁, one is put in front, unknown characters become bytes; no chat template."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += [chr(code) for code in range(33, 127)]
    merges = [("▁", "a"), ("a", "d"), ("ad", "d"), ("▁", "▁"), ("=", "="), ("▁", "=")]
    pieces += ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(
        models.BPE({piece: token for token, piece in enumerate(pieces)}, merges, unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
