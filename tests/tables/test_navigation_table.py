"""Table 2 right from beginning to end on a small cell: λ chosen elsewhere, rows, table, resumed without work."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from table_rows import cells, write_rows

from acid.errors import AcidError
from acid.evaluation import Local, read_rows, summarise
from acid.evaluation import jobs as jobs_module
from acid.models.nwm import TokenDynamics
from acid.tables import Choice, Findings, Options, locator, reproduce, rollouts, write
from acid.tables.navigation import (
    ARCS,
    AROUND,
    ATE,
    NAVIGATION,
    against_turn,
    beside_proposals,
    correlations,
    gains,
    judge_gain,
    judge_proposal,
)

LAMBDAS = (0.1, 1.0)
CHOICE = Choice({"original": (), **dict.fromkeys(("acid", "acid-path", "turn"), LAMBDAS)}, 2)
TABLE = replace(
    NAVIGATION,
    episodes=3,
    studies=tuple(
        replace(study, sizes={**study.sizes, "samples": 6, "elites": 2}, choice=CHOICE if study.choice else None)
        for study in NAVIGATION.studies
        if study.candidates != "nwm" and study != AROUND  # two families are enough here
    ),
)
ARC, LINE, REFINED = TABLE.studies
NAMES = ("prior mean", "random cost", "turn penalty", "Original", "ACID", "ACID of path", "best of pool")


@pytest.fixture
def findings(navigation_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Findings:
    """The tiny cell, whose λ is not chosen yet."""
    monkeypatch.setattr(locator, "ROUNDS", 1)
    folder = shutil.copytree(navigation_folder, tmp_path / "cell")
    (folder / "lambda.json").unlink()
    return Findings(TABLE, Options(tmp_path / "results", folder))


def by_line(text: str) -> dict[tuple[str, ...], list[str]]:
    return {tuple(row[:3]): row for row in cells(text) if row[0] in ("arc", "line")}


@pytest.mark.slow
def test_everything_runs_once_and_is_told_beside_what_is_published(
    findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, told = findings.options.results, []
    reproduce(findings, Local(), lambda done, total: None, say=told.append)
    assert told
    assert told[0].startswith("chose λ = ")
    lambdas = findings.cell(ARC).lambdas
    assert lambdas.keys() == {"acid", "acid-path", "turn"}
    assert set(lambdas.values()) <= set(LAMBDAS)
    text = write(findings)
    found = by_line(text)
    pooled = {(family, "1", name) for family in ("arc", "line") for name in NAMES} - {("line", "1", "ACID of path")}
    assert set(found) == pooled | {("arc", "3", name) for name in ("turn penalty", "Original", "ACID")}
    assert {row[4] for row in found.values()} == {"3"}
    assert found["arc", "1", "Original"][6] == "-"
    assert found["arc", "1", "ACID"][3] == f"{lambdas['acid']:g}"
    assert found["arc", "1", "Original"][-1] == "1.314 / 0.383"
    assert found["arc", "1", "prior mean"][-1] == "-"
    for told_too in ("goal cost with ATE", "| ACID's ", "| of the path ", "not followed", "of the turn penalty, arc"):
        assert told_too in text
    content = json.loads((results / "navigation.json").read_text())
    assert content["correlations"].keys() == {"arc", "line"}
    assert -1 <= content["correlations"]["arc"]["rank_goal"]["mean"] <= 1
    assert [(one["candidates"], one["iterations"], one["n"]) for one in content["acid_against_turn"]] == [
        ("arc", 1, 3),
        ("line", 1, 3),
        ("arc", 3, 3),
    ]

    lines = {(line.study.spec().candidates, line.study.spec().iterations, line.condition): line
             for line in findings.lines()}  # fmt: skip
    acid, original, turn = (lines["arc", 1, name] for name in ("acid", "original", "turn"))
    difference = acid.difference(ATE)
    assert difference is not None
    assert difference.difference == pytest.approx(acid.mean(ATE).mean - original.mean(ATE).mean)
    apart = against_turn(findings)["arc", 1]
    assert apart.difference == pytest.approx(acid.mean(ATE).mean - turn.mean(ATE).mean)
    best = lines["arc", 1, "best"].mean(ATE).mean
    assert best <= min(lines["arc", 1, name].mean(ATE).mean for name in ("prior", "chance", "original", "acid"))

    everyone = summarise(results)  # `acid results` reads these rows too
    assert {s.metric for s in everyone} == {ATE}
    assert {s.lam for s in everyone if s.condition == "acid"} == set(LAMBDAS)

    # What was run is not run again.
    rows = {path: path.read_bytes() for path in results.rglob("*.jsonl")}
    fail = lambda *_, **__: pytest.fail("run again")  # noqa: E731
    monkeypatch.setattr(jobs_module, "play", fail)
    monkeypatch.setattr(rollouts, "imagine", fail)
    reproduce(findings, Local(), lambda done, total: None)
    assert {path: path.read_bytes() for path in results.rglob("*.jsonl")} == rows


def test_conditions_that_share_a_pool_imagine_it_once(
    findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings.cell(ARC).choose_lambdas(dict.fromkeys(("acid", "acid-path", "turn"), 1.0), "because")
    (job,) = [job for job in findings.jobs() if job.contenders[0].search == ARC.spec()]
    assert {c.condition for c in job.contenders} == set(ARC.conditions)
    assert len(job.contenders) == 4 + 3 * len(LAMBDAS)
    unroll, imagined = TokenDynamics.unroll, []
    monkeypatch.setattr(TokenDynamics, "unroll", lambda *a, **k: (imagined.append(1), unroll(*a, **k))[1])
    counts = []
    for contenders, name in ((job.contenders[:1], "one"), (job.contenders, "all")):
        imagined.clear()
        some = replace(job, contenders=contenders, instances=job.instances[:2], results=tmp_path / name)
        some.run()
        counts.append(len(imagined))
    assert counts[0] == counts[1] > 0
    rows = read_rows(some.files)
    assert len(rows) == 2 * len(job.contenders)
    assert len({tuple(sorted(row.pool.items())) for row in rows if row.instance == rows[0].instance}) == 1


def test_a_table_of_nothing_is_empty(findings: Findings) -> None:
    assert list(findings.lines()) == []
    assert correlations(findings) == {}
    assert against_turn(findings) == {}
    assert judge_gain(findings) is None
    assert by_line(write(findings)) == {}


def add(findings: Findings, study, name: str, ate: float) -> None:
    metrics = {"ate_waypoints": ate, "rpe_waypoints": 0.1, "ate_m": ate / 4, "rpe_m": 0.025, "collided": 0.0}
    pool = {"rank_goal": 0.5, "rank_consistency": 0.25, "rank_turn": 0.5, "rank_consistency_turn": 0.5}
    episodes = [{"metrics": {**metrics, "ate_waypoints": ate + 0.1 * k}} for k in range(4)]
    write_rows(findings, study, name, episodes, pool=pool, metric="ate_waypoints", higher_is_better=False)


def test_the_claim_is_about_both_families_of_candidates(findings: Findings) -> None:
    findings.cell(ARC).choose_lambdas({"acid": 1.0, "turn": 1.0}, "because")
    for study in (ARC, LINE):
        assert judge_gain(findings) is None
        add(findings, study, "original", 2.0)
        add(findings, study, "acid", 1.5)
    assert str(judge_gain(findings)).startswith("confirmed at this scale. Both gain for certain.")
    assert correlations(findings)["arc"]["rank_goal"].mean == 0.5
    add(findings, LINE, "acid", 2.0)
    assert str(judge_gain(findings)).startswith(
        "not confirmed at this scale. 1 of 2 gains for certain (Navigation with arcs)."
    )
    add(findings, ARC, "turn", 1.0)
    assert against_turn(findings)["arc", 1].difference == pytest.approx(0.5)


def test_a_proposal_is_compared_with_the_search_around_the_current_speed(tmp_path: Path) -> None:
    findings = Findings(NAVIGATION, Options(tmp_path))  # of the shipped cell
    assert judge_proposal(findings, "proposal", "turn") is None
    assert beside_proposals(findings) == []
    for name, ate in (("original", 1.0), ("turn", 0.9)):
        add(findings, ARCS, name, ate)
    for name, ate in (("policy", 1.2), ("proposal", 0.7)):
        add(findings, AROUND, name, ate)
    assert str(judge_proposal(findings, "proposal", "turn")).startswith("confirmed at this scale. The gain is certain.")
    assert [line.split(":")[0] for line in beside_proposals(findings)] == [
        "ATE of proposal less that of policy",
        "ATE of proposal less that of turn penalty",
    ]
    found = by_line(write(findings))
    assert found["arc", "1", "proposal"][6].startswith("-0.3")
    assert found["arc", "-", "policy"][6].startswith("+0.2")
    add(findings, ARCS, "acid", 0.8)
    assert gains(findings, NAVIGATION.studies).keys() == {"Navigation with arcs"}
    assert correlations(findings).keys() == {"arc", "arc around a policy"}


def test_a_cell_without_a_policy_has_the_other_lines(navigation_folder: Path, tmp_path: Path) -> None:
    findings = Findings(NAVIGATION, Options(tmp_path, navigation_folder))
    assert AROUND not in findings.studies
    assert ARCS in findings.studies


def test_a_folder_without_a_cell_is_refused(tmp_path: Path) -> None:
    nowhere = Findings(TABLE, Options(tmp_path, tmp_path / "nowhere"))
    with pytest.raises(AcidError, match="there are no cells of this table below"):
        reproduce(nowhere, Local(), lambda done, total: None)
