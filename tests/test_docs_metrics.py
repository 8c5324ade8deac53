"""What docs/metrics.md, the dashboard and the alerts say is about counters that there are, and parses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from test_metrics import ROUNDS

from lookahead_edit.config import DEFAULT_ROUTES, DriftConfig
from lookahead_edit.server.telemetry import Telemetry

DOCS = Path(__file__).parent.parent / "docs"
SOURCES = ("metrics.md", "../README.md", "grafana.json", "alerts.yml")
PROMTOOL = shutil.which("promtool")


def expressions(name: str) -> Iterator[str]:
    text = (DOCS / name).read_text(encoding="utf-8")
    if name.endswith(".md"):
        yield from re.findall(r"```promql\n(.*?)```", text, re.DOTALL)
    elif name.endswith(".yml"):
        yield from (rule["expr"] for group in yaml.safe_load(text)["groups"] for rule in group["rules"])
    else:
        yield from (target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"])


def known_names() -> dict[str, set[str]]:
    """Names of samples, and their labels."""
    telemetry = Telemetry(["edits"])
    telemetry.watch_queue(lambda: 0, lambda: 0)
    telemetry.watch_kept_prompts(lambda: 0)
    telemetry.count_rounds("edits", ROUNDS)
    telemetry.count_error(ValueError())
    names = {}
    for family in telemetry.registry.collect():
        for suffix in {"counter": ["_total"], "histogram": ["_bucket"]}.get(family.type, [""]):
            labels = {label for sample in family.samples for label in sample.labels}
            names[f"{family.name}{suffix}"] = labels
    return names


@pytest.mark.parametrize("name", SOURCES)
def test_every_expression_is_about_counters_that_there_are(name: str) -> None:
    known = known_names()
    found = list(expressions(name))
    assert len(found) > 2
    for expression in found:
        used = re.findall(r"lookahead:\w+", expression)
        assert used
        assert set(used) <= set(known), expression
        for labels in re.findall(r"by \((.*?)\)", expression):
            available = set().union(*(known[each] for each in used))
            assert set(labels.replace(" ", "").split(",")) <= available, expression


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: apt-get install prometheus")
@pytest.mark.parametrize("name", SOURCES)
def test_every_expression_parses(name: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    if name == "alerts.yml":
        shutil.copy(DOCS / name, rules)
    else:
        filled = [re.sub(r"\$__\w+", "5m", each).replace("$route", ".*") for each in expressions(name)]
        records = [{"record": f"record:number{number}", "expr": each} for number, each in enumerate(filled)]
        rules.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": records}]}), encoding="utf-8")
    checked = subprocess.run([str(PROMTOOL), "check", "rules", str(rules)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_panel_of_the_dashboard_has_a_place_and_a_name_of_its_own() -> None:
    """What Grafana would put right by itself on loading, or show on top of each other."""
    panels = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + column, place["y"] + row) for column in range(place["w"]) for row in range(place["h"])}
        assert max(column for column, _ in cells) < 24
        assert not taken & cells, panel["title"]
        taken |= cells
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names)
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert sources == [{"type": "prometheus", "uid": "${datasource}"}] * len(sources)


def test_every_metric_is_in_the_table() -> None:
    table = (DOCS / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", table.split("\n## ")[0]))
    names = {name.removeprefix("lookahead:").removesuffix("_bucket") for name in known_names()}
    assert names <= named


def test_the_figures_of_the_drift_detector_are_those_of_the_code() -> None:
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    config = DriftConfig()
    for figure in (
        f"first {config.num_reference_requests} requests",
        f"until they have {config.min_draft_tokens} draft tokens",
        f"a slack of {config.slack:g}",
        f"passes {config.threshold:g} times",
        f"weights over {config.max_lag_requests} requests",
        f"moved by {config.min_change:g} or more",
        f"for {config.num_adopting_requests:,} requests",
    ):
        assert figure in re.sub(r"\s+", " ", text), figure
    for route in DEFAULT_ROUTES:
        assert f"`{route.name}`" in text
