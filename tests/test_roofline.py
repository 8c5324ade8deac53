"""The least a pass can cost, and the plot that shows it beside what passes cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import platformdirs
import pytest
import torch

from lookahead_edit import cli
from lookahead_edit.cli_plot_cost import plot_cost_curve
from lookahead_edit.config import TargetConfig
from lookahead_edit.cost import CPU_CURVE, CostCurve
from lookahead_edit.editor import Editor
from lookahead_edit.targets import roofline
from lookahead_edit.targets.making import make_target
from lookahead_edit.targets.roofline import Roofline, cache_bytes_per_token, measure_roofline
from lookahead_edit.tokenizer import ByteTokenizer

ROOF = Roofline(
    weight_bytes=400_000_000,
    cache_bytes=100_000_000,
    bytes_per_second=10e9,
    operations_per_token=200e6,
    operations_per_second=100e9,
)


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "CPU_BYTES", 1024 * 1024)
    monkeypatch.setattr(roofline, "CPU_SIDE", 64)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))


def test_narrow_passes_are_bound_by_reading_and_wide_ones_by_computing() -> None:
    assert ROOF.memory_seconds == pytest.approx(0.05)
    assert ROOF.balanced_width == pytest.approx(25.0)
    assert [ROOF.seconds(width) for width in (1, 25, 100)] == pytest.approx([0.05, 0.05, 0.2])


def test_what_a_pass_reads_is_counted_from_the_model(tiny_model: Any) -> None:
    model = tiny_model("llama")
    measured = measure_roofline(model, 100)
    table = model.get_input_embeddings().weight
    num_weights = sum(parameter.numel() for parameter in model.parameters())
    assert measured.weight_bytes == 4 * (num_weights - table.numel())
    assert measured.operations_per_token == 2.0 * (num_weights - table.numel())
    # 3 layers, 2 heads of 8 numbers, keys and values, 4 bytes each.
    assert cache_bytes_per_token(model) == 3 * 2 * 8 * 2 * 4
    assert measured.cache_bytes == 100 * cache_bytes_per_token(model)
    assert measured.bytes_per_second > 0.0
    assert measured.operations_per_second > 0.0


def test_a_table_that_is_the_output_layer_too_counts_once(tiny_model: Any) -> None:
    import transformers as hf
    from tiny_models import SHAPE

    model = hf.LlamaForCausalLM(hf.LlamaConfig(**SHAPE, tie_word_embeddings=True))
    weights = {parameter.data_ptr(): parameter.numel() for parameter in model.parameters()}
    assert measure_roofline(model, 1).weight_bytes == 4 * sum(weights.values())


def test_recurrent_models_keep_no_keys(tiny_model: Any) -> None:
    assert cache_bytes_per_token(tiny_model("mamba2")) == 0


@pytest.mark.parametrize(
    "curve", [CPU_CURVE, CostCurve((1, 8, 9), ((0.1, 0.2, 0.4), (0.2, 0.3, 0.5)), batch_sizes=(1, 4))]
)
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_curves_are_drawn(tmp_path: Path, curve: CostCurve, suffix: str) -> None:
    path = tmp_path / f"cost{suffix}"
    plot_cost_curve(curve, ROOF, str(path), title="a model, float32, a machine")
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert len(content) > 5000


@pytest.mark.parametrize("kind", ["dynamic", "static", "deterministic"])
def test_the_command_measures_every_target_and_draws_it(
    tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: Any
) -> None:
    config = TargetConfig(kind=kind, deterministic_width=8)
    editor = Editor(make_target(tiny_model("llama"), config), ByteTokenizer(), model_name="tiny")
    monkeypatch.setattr("lookahead_edit.cli_calibrate.open_editor", lambda *arguments: editor)
    plot = tmp_path / "cost.png"
    with pytest.raises(SystemExit) as exited:
        cli.main(["calibrate", "--target", kind, "--plot", str(plot), "--json"])
    assert not exited.value.code
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert document["roofline"]["balanced_width"] > 0.0
    assert "drawn in" in printed.err
    widths = [row["width"] for row in document["passes"]]
    assert widths[:2] == ([1, 8] if kind == "deterministic" else [1, 2])
    assert editor.target.cost_curve == make_target(tiny_model("llama"), config).cost_curve
    if kind == "deterministic":
        assert widths == [1, 8, 9]
        one, eight, nine = editor.target.cost_curve.costs[0]
        assert one == eight == pytest.approx(nine / 2.0)


def test_targets_of_a_model_have_curves_of_their_own(tiny_model: Any) -> None:
    from lookahead_edit.targets.calibration import calibration_path

    model = tiny_model("llama")
    configs = [
        None,
        TargetConfig(kind="static"),
        TargetConfig(kind="static", widths=(1, 8)),
        TargetConfig(kind="deterministic"),
        TargetConfig(kind="deterministic", deterministic_width=8),
    ]
    assert len({calibration_path(model, config) for config in configs}) == len(configs)
    assert calibration_path(model) == calibration_path(model, TargetConfig(prefill_chunk_tokens=7))


def test_a_plot_that_can_not_be_written_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for name, message in (
        ("cost.txt", "expected --plot to end in"),
        ("nowhere/cost.png", "can't write nowhere/cost.png"),
    ):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["calibrate", "--plot", name])
        assert capsys.readouterr().err.startswith(f"error: {message}")


def test_a_gpu_is_timed_by_copying() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    assert roofline.measure_bytes_per_second(torch.device("cuda")) > 1e11
