"""Latency and net compute."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fake_rows import row
from table_rows import cells, write_rows

from acid.errors import DataError
from acid.planning import Adaptive, Cost, draw_pool
from acid.tables import Findings, Options, Study, published_sizes, savings, write
from acid.tables.latency import LATENCY, file_of, load, measure, net_compute, subjects
from acid.tables.robustness import BUDGETS, acid_at, original_at

SMALL = {"samples": 6, "iterations": 2, "elites": 2}


def keep(findings: Findings) -> None:
    """A verifier that takes a quarter of the rollout's time."""
    entries = {
        one.name: {"made_of": one.made_of, "rollout": [0.4] * 3, "verifier": [0.1] * 3} for one in subjects(findings)
    }
    file_of(findings).write_text(json.dumps(entries))


def test_times_and_their_ratio_are_told_beside_the_papers(tmp_path: Path):
    findings = Findings(LATENCY, Options(tmp_path))
    assert "not evaluated yet" in write(findings)
    keep(findings)
    rows = {(row[0], row[1]): row for row in cells(write(findings))}
    assert len(rows) == 9 + len(published_sizes.SIZES)
    assert rows["DINO-WM", "published size"][-1] == "39.4%"
    assert rows["Le-WM", "Cube"][4:] == [
        "400.0 [400.0, 400.0]",
        "100.0 [100.0, 100.0]",
        "25.0% [25.0%, 25.0%]",
        "11.5%",
    ]


def test_net_compute_counts_candidates_and_pushes_and_the_verifier(tmp_path: Path):
    findings = Findings(LATENCY, Options(tmp_path))
    keep(findings)
    assert net_compute(findings) == []
    add = [(original_at("lewm", 300), 20), *((acid_at("lewm", n, 0.07), 10 if n == 30 else 25) for n in BUDGETS)]
    for study, wins in add:
        write_rows(findings, study, study.conditions[0], [{"success": k < wins} for k in range(40)])
    for name, errors in (("original", (3.0, 2.0, 1.0, 1.0)), ("acid", (3.0, 1.0, 0.9, 0.8))):
        write_rows(findings, Study("rope", "dinowm", (name,)), name, [{"errors": errors, "metric": "chamfer"}] * 1)
    found = {name: share for name, share, _ in net_compute(findings)}
    assert found["Le-WM, Reacher"] is not None
    assert found["Le-WM, Reacher"].mean == pytest.approx(50 / 300 * 1.25)  # 30 are not enough
    assert found["DINO-WM, Rope"] is not None
    assert found["DINO-WM, Rope"].mean == pytest.approx(2 / 4 * 1.25)
    assert "with 0.62 × [0.62, 0.62] of its compute (paper: 0.7 ×)" in write(findings)


def test_an_interval_says_so_if_acid_may_never_get_there():
    """A third of the problems carries all of the gain, so that many resamples never reach Original's mean."""
    original = [row(k, errors=(3.0, 2.0, 1.0)) for k in range(9)]
    acid = [row(k, errors=(3.0, 0.0, 0.0) if k < 3 else (3.0, 1.4, 1.4)) for k in range(9)]
    share = savings.pushes(original, acid)
    assert share is not None
    assert (share.mean, share.high) == (2 / 3, math.inf)


@pytest.mark.parametrize("name", published_sizes.SIZES)
def test_networks_of_the_published_size_plan(name: str):
    kit, problem = published_sizes.build(name)
    small = replace(published_sizes.spec(name), samples=2, elites=1)
    cost = Cost([kit.goal(), kit.consistency(Adaptive(1.0))])
    with torch.no_grad():
        terms = draw_pool(kit.planner(cost, small), problem, seed=0).evaluate(cost).terms
    assert all(value.shape == (1, 2) and value.isfinite().all() for value in terms.values())


def test_an_iteration_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(published_sizes, "SIZES", {})
    table = replace(LATENCY, studies=(Study("reacher", "lewm", (), SMALL),))
    findings = Findings(table, Options(tmp_path))
    measure(findings, lambda done, total: None)
    (entry,) = load(findings).values()
    assert len(entry["rollout"]) == len(entry["verifier"]) == 8
    assert min(entry["rollout"] + entry["verifier"]) > 0
    before = file_of(findings).read_bytes()
    measure(findings, lambda done, total: None)
    assert file_of(findings).read_bytes() == before
    file_of(findings).write_text('{"reacher/lewm": {}}')
    with pytest.raises(DataError, match="an entry is not complete"):
        load(findings)
