"""The shape of the package: imports point down, heavy packages stay where they belong, files stay small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import lookahead_edit

ROOT = Path(lookahead_edit.__file__).parent
# Lowest first. A module may import from its own layer and from lower ones, and nothing in a circle.
LAYERS = (
    r"types",
    r"config\w*|failures|kernels.*",
    r"suffix_index|workspace_index|verify|metrics\w*|tokenizer|chat_tokens|\w*text\w*|tasks|prompts|traces",
    r"cost|crossover|drafters.*|payoff|acceptance|policy\w*|sequence|speculation|prompt_sources",
    r"engine",
    r"targets.*|hook\w*|live|editor|scheduler|replay\w*|advise|corpus\w*|audit\w*|vllm_plugin.*",
    r"server.*",
    r"cli\w*",
    r"__init__|__main__",
)
WHERE = {
    "torch": r"verify|targets\..*|hook\w*",
    "transformers": r"targets\..*|hook\w*",
    "matplotlib": r"cli_plot\w*",
    "peft": r"targets\..*",
    "huggingface_hub": r"targets\..*",
    "numba": r"kernels\..*|suffix_index",
    "typer": r"cli\w*",
    "rich": r"cli\w*|targets\..*",
    "vllm": r"vllm_plugin.*",
    "httpx": r"vllm_plugin\..*",
    **dict.fromkeys(
        ("fastapi", "starlette", "sse_starlette", "pydantic", "prometheus_client", "uvicorn"), r"server\..*"
    ),
}
PUBLIC_NAMES = [
    "ContextLengthExceeded",
    "EditConfig",
    "InvalidInput",
    "LookaheadEdit",
    "LookaheadEditError",
    "ModelUnavailable",
    "RequestCancelled",
    "SamplingConfig",
    "ServerConfig",
    "SpeculationConfig",
    "TargetConfig",
    "UnsupportedModel",
    "edit",
    "load_model",
]


@cache
def trees() -> dict[str, ast.Module]:
    """Module, such as ``targets.hf``, to its syntax tree; a package is named like its folder."""
    paths = {path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path for path in ROOT.rglob("*.py")}
    return {name.removesuffix(".__init__"): ast.parse(path.read_text("utf-8")) for name, path in paths.items()}


def imports(node: ast.AST) -> Iterator[str]:
    """Every imported module, also inside functions, but not what only type checkers see."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative import"
            yield from (
                f"{child.module}.{alias.name}" if child.module == "lookahead_edit" else str(child.module)
                for alias in child.names
            )
        yield from imports(child)


def own_imports(name: str) -> set[str]:
    found = {module.removeprefix("lookahead_edit.") for module in imports(trees()[name]) if "lookahead_edit." in module}
    return {module if module in trees() else "__init__" for module in found} - {name}


def layer_of(name: str) -> int:
    layers = [number for number, pattern in enumerate(LAYERS) if re.fullmatch(pattern, name)]
    assert len(layers) == 1, f"{name} belongs to no layer: put it into LAYERS"
    return layers[0]


@pytest.mark.parametrize("name", sorted(trees()))
def test_imports_point_down(name: str) -> None:
    above = {other for other in own_imports(name) if layer_of(other) > layer_of(name)}
    # The version and the public names may be asked for from anywhere above the engine.
    assert above - ({"__init__"} if layer_of(name) > layer_of("engine") else set()) == set()


def test_imports_form_no_circle() -> None:
    TopologicalSorter({name: own_imports(name) - {"__init__"} for name in trees()}).prepare()


@pytest.mark.parametrize("package", sorted(WHERE))
def test_heavy_packages_are_imported_only_where_they_belong(package: str) -> None:
    users = {name for name, tree in trees().items() if package in {module.split(".")[0] for module in imports(tree)}}
    assert {name for name in users if not re.fullmatch(WHERE[package], name)} == set()


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = f"set({sorted(WHERE)}) & set(sys.modules)"
    command = f"import sys, lookahead_edit; found = {heavy}; sys.exit(f'loaded: {{found}}' if found else 0)"
    finished = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 0, finished.stderr


def test_the_public_names_are_these_and_exist() -> None:
    assert sorted(lookahead_edit.__all__) == PUBLIC_NAMES
    assert all(getattr(lookahead_edit, name) for name in PUBLIC_NAMES)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lookahead_edit.nothing  # noqa: B018


@pytest.mark.parametrize("folder", ["lookahead_edit", "tests", "benchmarks", "corpora"])
def test_files_are_small_and_named_by_what_they_do(folder: str) -> None:
    paths = list((ROOT.parent / folder).rglob("*.py"))
    assert [path.name for path in paths if len(path.read_text("utf-8").splitlines()) > 400] == []
    assert [path.name for path in paths if path.name in ("utils.py", "helpers.py", "common.py")] == []


@pytest.mark.parametrize("name", sorted(trees()))
def test_public_functions_and_classes_say_what_they_promise(name: str) -> None:
    """Records of fields and commands may do without: the names of the fields, and the help, say it."""
    bare = [
        node.name
        for node in trees()[name].body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not all(isinstance(statement, ast.Assign | ast.AnnAssign) for statement in node.body)
        and not any("app." in ast.unparse(decorator) for decorator in node.decorator_list)
    ]
    assert bare == []
