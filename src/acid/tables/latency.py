"""The paper's table of latencies, and its claim about net compute: the cost of the verifier against what it saves."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acid import tasks
from acid.errors import DataError
from acid.evaluation import BASELINE, Bench, Interval, Row, bootstrap_mean
from acid.evaluation.agents import observed
from acid.evaluation.jobs import Progress
from acid.evaluation.play import render_states
from acid.evaluation.statistics import CONFIDENCE
from acid.evaluation.table import markdown
from acid.files import read_json_object, write_text
from acid.planning import Adaptive, Cost, draw_pool
from acid.tables import deformable, navigation, planning, robustness
from acid.tables.names import called
from acid.tables.table import Claim, Findings, Study, Table
from acid.tables.verdict import Verdict
from acid.types import Problem

REPEATS = 8
PUBLISHED = {"lewm": (25.7, 2.96), "pldm": (27.6, 2.46), "dinowm": (2287.5, 901.0), "nwm": (199.9, 67.3)}  # ms
PUBLISHED_NET = {"dinowm": 0.7, "reacher": 0.1}
RESAMPLES = 2000


def file_of(findings: Findings) -> Path:
    return findings.options.results / "latencies.json"


def measure(findings: Findings, progress: Progress) -> None:
    """One iteration of the task's usual search, again and again: seconds of the rollout and of the verifier."""
    kept = load(findings)
    for done, study in enumerate(findings.studies):
        progress(done, len(findings.studies))
        name, made_of = f"{study.task}/{study.model}", _made_of(findings, study)
        if kept.get(name, {}).get("made_of") != made_of:
            kept[name] = {"made_of": made_of, **time_iterations(findings.bench(study))}
            write_text(file_of(findings), json.dumps(kept, indent=2) + "\n")
    progress(len(findings.studies), len(findings.studies))


def _made_of(findings: Findings, study: Study) -> dict[str, Any]:
    return {
        "checkpoints": findings.cell(study).fingerprints(["model", "verifier"]),
        "search": study.spec().name,
        "device": findings.options.device,
        "machine": platform.machine(),
        "threads": 1,
    }


@torch.no_grad()
def time_iterations(bench: Bench, repeats: int = REPEATS) -> dict[str, list[float]]:
    """Wall seconds of the rollout and of the verifier in some iterations, each of one problem; one more warms up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        kit, protocol = bench.kit, bench.protocol
        instance = bench.cell.instances(protocol)[0]
        with closing(tasks.make(bench.cell.task, size=kit.model.observation_size)) as task:
            goal, *seen = render_states(task, np.concatenate([instance.goal_state[None], instance.seen]))
        frames = np.stack(seen)
        start = kit.model.encode(observed(kit.model, (frames[0] if len(frames) == 1 else frames)[None]))
        problem = Problem(start, kit.model.encode(observed(kit.model, goal[None])))
        cost = Cost([kit.goal(), kit.consistency(Adaptive(1.0))])
        planner = kit.planner(cost, bench.spec)
        found: dict[str, list[float]] = {"rollout": [], "verifier": []}
        for repeat in range(repeats + 1):
            pool = draw_pool(planner, problem, seed=repeat)
            pool.evaluate(cost)
            if repeat:
                found["rollout"].append(pool.seconds["rollout"])
                found["verifier"].append(pool.seconds["consistency"])
        return found
    finally:
        torch.set_num_threads(threads)


def load(findings: Findings) -> dict[str, dict[str, Any]]:
    path = file_of(findings)
    if not path.is_file():
        return {}
    remedy = "delete it and run `acid reproduce latency` again"
    content = read_json_object(path, remedy=remedy)
    if not all(isinstance(one, dict) and {"made_of", "rollout", "verifier"} <= one.keys() for one in content.values()):
        raise DataError(f"{path} is damaged: an entry is not complete; {remedy}")
    return content


def _entry(findings: Findings, study: Study) -> dict[str, Any] | None:
    """What was measured of these weights and this search, on whichever device."""
    found = load(findings).get(f"{study.task}/{study.model}")
    wanted = _made_of(findings, study)
    same = found is not None and all(found["made_of"][k] == wanted[k] for k in ("checkpoints", "search"))
    return found if same else None


def overhead(entry: dict[str, Any]) -> Interval:
    """Verifier over rollout."""
    ratios = np.array(entry["verifier"]) / np.array(entry["rollout"])
    return bootstrap_mean(ratios)


def describe(findings: Findings) -> list[str]:
    rows = []
    for study in findings.studies:
        entry = _entry(findings, study)
        if entry is not None:
            wm, idm = (bootstrap_mean(1000 * np.array(entry[name])) for name in ("rollout", "verifier"))
            paper = PUBLISHED[study.model]
            share = overhead(entry)
            rows.append([
                called(study.model), called(study.task), study.spec().label, entry["made_of"]["device"],
                *(f"{v.mean:.1f} [{v.low:.1f}, {v.high:.1f}]" for v in (wm, idm)),
                f"{share.mean:.1%} [{share.low:.1%}, {share.high:.1%}]", f"{paper[1] / paper[0]:.1%}",
            ])  # fmt: skip
    heading = ["model", "task", "search", "device", "world model ms", "verifier ms", "verifier / world model", "paper"]
    lines = [markdown(heading, rows, texts=4)] if rows else []
    nets = [
        f"{name}: ACID reaches Original's final quality with {_told(found)} of its compute (paper: {paper:g} ×)."
        for name, found, paper in net_compute(findings)
    ]
    return [*lines, *nets]


def _told(found: Interval | None) -> str:
    return "more than all" if found is None else f"{found.mean:.2f} × [{found.low:.2f}, {found.high:.2f}]"


def net_compute(findings: Findings) -> list[tuple[str, Interval | None, float]]:
    """By cell: the compute with which ACID is as good as Original with all of its own; None if it never is.

    DINO-WM: pushes; Reacher: candidates; both times the overhead of the verifier.
    """
    found = []
    for study in findings.studies:
        entry = _entry(findings, study)
        if entry is None:
            continue
        cost = 1 + overhead(entry).mean
        name = f"{called(study.model)}, {called(study.task)}"
        if study.model == deformable.MODEL:
            sides = [findings.rows(Study(study.task, study.model, (n,)), n) for n in (BASELINE, "acid")]
            if all(sides):
                found.append((name, _saved(sides[0], [("", sides[1])], cost, _pushes), PUBLISHED_NET["dinowm"]))
        elif study.task == robustness.TASK:
            runs = {
                n: findings.rows(robustness._acid(study.model, n, robustness.USUAL), "acid") for n in robustness.BUDGETS
            }
            full = findings.rows(robustness._original(study.model, robustness.FULL), BASELINE)
            if full and all(runs.values()):
                found.append((name, _saved(full, list(runs.items()), cost, _candidates), PUBLISHED_NET["reacher"]))
    return found


def _saved(original: list[Row], runs: list[tuple[Any, list[Row]]], cost: float, share: Callable) -> Interval | None:
    """Resample the episodes that all have; in each resample, find the share of the compute."""
    by = [{row.pair: row for row in rows} for rows in (original, *(rows for _, rows in runs))]
    shared = sorted(set.intersection(*(set(one) for one in by)))
    rng = np.random.default_rng(0)
    draws = [np.arange(len(shared)), *rng.integers(len(shared), size=(RESAMPLES, len(shared)))]
    values = share(*([one[pair] for pair in shared] for one in by), names=[name for name, _ in runs])
    found = np.array([values(draw) for draw in draws]) * cost
    if not np.isfinite(found[0]):
        return None
    finite = np.where(np.isfinite(found), found, np.nanmax(found[np.isfinite(found)]))
    low, high = np.quantile(finite[1:], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(len(shared), float(found[0]), float(low), float(high))


def _pushes(original: list[Row], acid: list[Row], *, names: list[Any]) -> Callable[[np.ndarray], float]:
    theirs, mine = (np.array([row.errors for row in rows]) for rows in (original, acid))

    def share(draw: np.ndarray) -> float:
        level, curve = theirs[draw, -1].mean(), mine[draw].mean(0)
        reached = np.flatnonzero(curve <= level)
        return (reached[0] + 1) / theirs.shape[1] if len(reached) else np.inf

    return share


def _candidates(original: list[Row], *runs: list[Row], names: list[Any]) -> Callable[[np.ndarray], float]:
    theirs, mine = np.array([r.success for r in original]), [np.array([r.success for r in rows]) for rows in runs]

    def share(draw: np.ndarray) -> float:
        good = [name for name, run in zip(names, mine, strict=True) if run[draw].mean() >= theirs[draw].mean()]
        return min(good) / max(names) if good else np.inf

    return share


def judge_net(findings: Findings) -> Verdict | None:
    """Whether ACID needs less compute than Original for Original's quality, in every cell that can tell."""
    found = net_compute(findings)
    if len(found) < len(deformable.TASKS) + len(planning.MODELS):
        return None
    reason = "; ".join(f"{name} {_told(one)}" for name, one, _ in found) + "."
    if all(one is not None and one.high < 1 for _, one, _ in found):
        return Verdict("confirmed", reason)
    return Verdict(
        "contradicted" if any(one is None or one.low > 1 for _, one, _ in found) else "not confirmed", reason
    )


LATENCY = Table(
    name="latency",
    title="Table of the appendix: latency of world model and verifier, and net compute",
    studies=tuple(
        Study(task, model, ())
        for model, names in (
            *((model, planning.TASKS) for model in planning.MODELS),
            (deformable.MODEL, deformable.TASKS),
            (navigation.MODEL, (navigation.TASK,)),
        )
        for task in names
    ),
    episodes=1,
    measure=measure,
    ran=lambda findings, study: _entry(findings, study) is not None,
    after=describe,
    extra=lambda findings: {
        "net_compute": [{"cell": name, "share": one and asdict(one)} for name, one, _ in net_compute(findings)]
    },
    claims=(
        Claim('"Ours reaches a given quality with strictly less total planning compute than Original."', judge_net),
    ),
    legend=(
        f"One iteration of the task's usual search for one problem, mean wall time of {REPEATS} with 95 % intervals,",
        "one thread, machine and device as recorded in latencies.json; a busy machine makes both columns slower.",
        "paper: a GPU and models of full size. Net compute: the smallest share of pushes (DINO-WM) or of candidates",
        "(Reacher, λ 0.07) with which ACID's mean is as good as Original's final one, times 1 + the verifier's share;",
        "bootstrap over episodes.",
    ),
)
