"""Tiny random models, made on the spot."""

from __future__ import annotations

from typing import Any

VOCAB_SIZE = 97
SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}


def make_tiny_model(name: str) -> Any:
    """A random causal model whose greedy text wanders rather than repeating one token. float32, eval mode."""
    import torch
    import transformers as hf

    configs: dict[str, Any] = {
        "llama": lambda: hf.LlamaConfig(**SHAPE),
        "mistral": lambda: hf.MistralConfig(**SHAPE, sliding_window=16),
        "mistral without window": lambda: hf.MistralConfig(**SHAPE, sliding_window=None),
        "qwen2": lambda: hf.Qwen2Config(**SHAPE),
        "gpt2": lambda: hf.GPT2Config(
            vocab_size=VOCAB_SIZE,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=512,
            bos_token_id=1,
            eos_token_id=None,
            tie_word_embeddings=False,
        ),
        "lfm2": lambda: hf.Lfm2Config(
            **SHAPE, tie_word_embeddings=False, layer_types=["conv", "full_attention", "conv"]
        ),
        "mamba": lambda: hf.MambaConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=8,
            eos_token_id=None,
            tie_word_embeddings=False,
        ),
        "mamba2": lambda: hf.Mamba2Config(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=8,
            expand=2,
            num_heads=8,
            head_dim=8,
            n_groups=2,
            chunk_size=8,
            bos_token_id=1,
            eos_token_id=None,
            pad_token_id=0,
            tie_word_embeddings=False,
        ),
        "falcon_h1": lambda: hf.FalconH1Config(
            **(SHAPE | {"num_hidden_layers": 2}),
            mamba_d_ssm=64,
            mamba_n_heads=8,
            mamba_d_head=8,
            mamba_d_state=8,
            mamba_n_groups=1,
            mamba_chunk_size=8,
        ),
        "qwen3_next": lambda: hf.Qwen3NextConfig(
            **(SHAPE | {"num_hidden_layers": 4}),
            head_dim=16,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
            num_experts=4,
            num_experts_per_tok=2,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
        ),
    }
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(configs[name]())
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=1.0)
    model.generation_config = hf.GenerationConfig(bos_token_id=1, pad_token_id=0)
    return model.eval()
