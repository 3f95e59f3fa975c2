"""The paper's table of latencies, and its claim about net compute: the cost of the verifier against what it saves."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acid import tasks
from acid.errors import DataError, are_numbers
from acid.evaluation import BASELINE, Bench, Interval, SearchSpec, bootstrap_mean
from acid.evaluation.agents import observed
from acid.evaluation.jobs import Progress
from acid.evaluation.kits import Kit
from acid.evaluation.play import render_states
from acid.evaluation.table import markdown
from acid.files import read_json_object, write_text
from acid.planning import Adaptive, Cost, draw_pool
from acid.planning.timing import Stopwatch
from acid.tables import deformable, planning, published_sizes, robustness, savings
from acid.tables.names import EVERY_CELL, called
from acid.tables.table import Claim, Findings, Study, Table
from acid.tables.verdict import Verdict
from acid.types import Problem

REPEATS = 8
PUBLISHED = {"lewm": (25.7, 2.96), "pldm": (27.6, 2.46), "dinowm": (2287.5, 901.0), "nwm": (199.9, 67.3)}  # ms
PUBLISHED_NET = {"dinowm": 0.7, "reacher": 0.1}


def file_of(findings: Findings) -> Path:
    return findings.options.results / "latencies.json"


@dataclass(frozen=True)
class Subject:
    """A world model and its verifier, in one iteration of a search."""

    name: str  # in the file
    model: str
    where: str  # the task, or which size it has
    spec: SearchSpec
    made_of: dict[str, Any]
    open: Callable[[], tuple[Kit, Problem]]


def subjects(findings: Findings) -> list[Subject]:
    """The cells, each in its task's usual search; beside the shipped ones, the published sizes with random weights."""

    def subject(name: str, model: str, where: str, spec: SearchSpec, weights: Any, start: Callable) -> Subject:
        device = findings.options.device
        made_of = {"checkpoints": weights, "search": spec.name, "device": device, "clock": _clock(device)[0],
                   "machine": platform.machine(), "threads": 1}  # fmt: skip
        return Subject(name, model, where, spec, made_of, start)

    cells = [
        subject(
            f"{s.task}/{s.model}", s.model, called(s.task), s.spec(),
            findings.cell(s).fingerprints(["model", "verifier"]), partial(_first_problem, findings, s),
        )
        for s in findings.studies
    ]  # fmt: skip
    known = {study.model for study in findings.studies} if findings.options.folder is None else set()
    return cells + [
        subject(f"paper/{name}", name, "published size", published_sizes.spec(name), None,
                partial(published_sizes.build, name))
        for name in published_sizes.SIZES
        if name in known
    ]  # fmt: skip


def _first_problem(findings: Findings, study: Study) -> tuple[Kit, Problem]:
    bench: Bench = findings.bench(study)
    kit, instance = bench.kit, bench.cell.instances(bench.protocol)[0]
    with closing(tasks.make(bench.cell.task, size=kit.model.observation_size)) as task:
        goal, *seen = render_states(task, np.concatenate([instance.goal_state[None], instance.seen]))
    frames = np.stack(seen)
    start = kit.model.encode(observed(kit.model, (frames[0] if len(frames) == 1 else frames)[None]))
    return kit, Problem(start, kit.model.encode(observed(kit.model, goal[None])))


@torch.no_grad()
def measure(findings: Findings, progress: Progress) -> None:
    """One iteration, again and again; what was measured before is not measured again."""
    kept, found, (_, clock) = load(findings), subjects(findings), _clock(findings.options.device)
    for done, subject in enumerate(found):
        progress(done, len(found))
        if kept.get(subject.name, {}).get("made_of") != subject.made_of:
            kept[subject.name] = {"made_of": subject.made_of, **time_iterations(*subject.open(), subject.spec, clock)}
            write_text(file_of(findings), json.dumps(kept, indent=2) + "\n")
    progress(len(found), len(found))


def _clock(device: str) -> tuple[str, Callable[[], float]]:
    """CPU time where the work is done by a CPU, which is the same on a busy machine; else time on the wall."""
    return ("CPU time", time.process_time) if device == "cpu" else ("wall time", time.perf_counter)


def time_iterations(
    kit: Kit, problem: Problem, spec: SearchSpec, clock: Callable[[], float], repeats: int = REPEATS
) -> dict[str, list[float]]:
    """Seconds of the rollout and of the verifier in some iterations, after one that warms up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        cost = Cost([kit.goal(), kit.consistency(Adaptive(1.0))])
        planner = kit.planner(cost, spec)
        found: dict[str, list[float]] = {"rollout": [], "verifier": []}
        for repeat in range(repeats + 1):
            pool = draw_pool(planner, problem, seed=repeat, stopwatch=Stopwatch(clock))
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
    if not all(map(_complete, content.values())):
        raise DataError(f"{path} is damaged: an entry is not complete; {remedy}")
    return content


def _complete(entry: Any) -> bool:
    """Whether an entry tells what was measured and has a time of both in every repeat."""
    if not (isinstance(entry, dict) and {"made_of", "rollout", "verifier"} <= entry.keys()):
        return False
    made_of, times = entry["made_of"], [entry["rollout"], entry["verifier"]]
    if not (isinstance(made_of, dict) and {"checkpoints", "search", "device"} <= made_of.keys()):
        return False
    return all(map(are_numbers, times)) and len(times[0]) == len(times[1]) and min(map(min, times)) > 0


def _entry(findings: Findings, subject: Subject) -> dict[str, Any] | None:
    """What was measured of these weights and this search, on whichever device."""
    found = load(findings).get(subject.name)
    same = found is not None and all(found["made_of"][k] == subject.made_of[k] for k in ("checkpoints", "search"))
    return found if same else None


def _measured(findings: Findings, study: Study) -> dict[str, Any] | None:
    wanted = f"{study.task}/{study.model}"
    return next(_entry(findings, subject) for subject in subjects(findings) if subject.name == wanted)


def _timed_by(entry: dict[str, Any]) -> str:
    return f"{entry['made_of']['device']}, {entry['made_of'].get('clock', 'wall time')}"


def overhead(entry: dict[str, Any]) -> Interval:
    """Verifier over rollout."""
    ratios = np.array(entry["verifier"]) / np.array(entry["rollout"])
    return bootstrap_mean(ratios)


def describe(findings: Findings) -> list[str]:
    rows = []
    for subject in subjects(findings):
        entry = _entry(findings, subject)
        if entry is not None:
            wm, idm = (bootstrap_mean(1000 * np.array(entry[name])) for name in ("rollout", "verifier"))
            paper = PUBLISHED[subject.model]
            share = overhead(entry)
            rows.append([
                called(subject.model), subject.where, subject.spec.label, _timed_by(entry),
                *(f"{v.mean:.1f} [{v.low:.1f}, {v.high:.1f}]" for v in (wm, idm)),
                f"{share.mean:.1%} [{share.low:.1%}, {share.high:.1%}]", f"{paper[1] / paper[0]:.1%}",
            ])  # fmt: skip
    heading = ["model", "task", "search", "timed", "world model ms", "verifier ms", "verifier / world model", "paper"]
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
        entry = _measured(findings, study)
        if entry is None:
            continue
        cost = 1 + overhead(entry).mean
        name = f"{called(study.model)}, {called(study.task)}"
        if study.model == deformable.MODEL:
            sides = [findings.rows(Study(study.task, study.model, (n,)), n) for n in (BASELINE, "acid")]
            if all(sides):
                found.append((name, _costing(savings.pushes(*sides), cost), PUBLISHED_NET["dinowm"]))
        elif study.task == robustness.TASK:
            lam, budgets = robustness.USUAL, robustness.BUDGETS
            runs = {n: findings.rows(robustness.acid_at(study.model, n, lam), "acid") for n in budgets}
            full = findings.rows(robustness.original_at(study.model, robustness.FULL), BASELINE)
            if full and all(runs.values()):
                found.append((name, _costing(savings.candidates(full, runs), cost), PUBLISHED_NET["reacher"]))
    return found


def _costing(share: Interval | None, cost: float) -> Interval | None:
    """A share of the work, each part of which costs so much more than Original's."""
    if share is None:
        return None
    return replace(share, mean=cost * share.mean, low=cost * share.low, high=cost * share.high)


def judge_net(findings: Findings) -> Verdict | None:
    """Whether ACID needs less compute than Original for Original's quality, in every cell that can tell."""
    found = net_compute(findings)
    if len(found) < len(deformable.TASKS) + len(planning.MODELS):
        return None
    numbers = "Share of Original's compute: " + "; ".join(f"{name} {_told(one)}" for name, one, _ in found) + "."
    less = [name for name, one, _ in found if one is not None and one.high < 1]
    more = [name for name, one, _ in found if one is None or one.low > 1]
    if len(less) == len(found):
        return Verdict("confirmed", f"All {len(found)} cells need less compute for certain.", numbers)
    reason = f"{len(less)} of {len(found)} cells need less for certain ({', '.join(less) or 'none'})."
    if more:
        return Verdict("contradicted", f"{reason} {' and '.join(more)} need more, or never get there.", numbers)
    return Verdict("not confirmed", f"{reason} For the others the interval includes 1.", numbers)


def judge_overhead(findings: Findings) -> Verdict | None:
    """Whether the verifier costs no larger a share of the rollout than the paper says, at the published sizes."""
    found: dict[str, tuple[Interval, float]] = {}
    models, devices = set(), set()
    for subject in subjects(findings):
        entry = _entry(findings, subject)
        of_that_size = subject.name.startswith("paper/") or subject.model not in published_sizes.SIZES
        if entry is not None and (of_that_size or findings.options.folder is not None):
            world_model, verifier = PUBLISHED[subject.model]
            found[f"{called(subject.model)}, {subject.where}"] = overhead(entry), verifier / world_model
            models.add(subject.model)
            devices.add(_timed_by(entry))
    if models < PUBLISHED.keys():
        return None
    dearer = [name for name, (share, paper) in found.items() if share.low > paper]
    unclear = [name for name, (share, paper) in found.items() if share.low <= paper < share.high]
    kind = "contradicted" if dearer else "not confirmed" if unclear else "confirmed"
    said = f"{' and '.join(dearer)} cost a larger share here" if dearer else "No model costs a larger share for certain"
    numbers = "; ".join(
        f"{name} {share.mean:.1%} [{share.low:.1%}, {share.high:.1%}], paper {paper:.1%}"
        for name, (share, paper) in found.items()
    )
    return Verdict(kind, f"{said}, timed on {' or '.join(sorted(devices))}; the paper used a GPU.", f"{numbers}.")


LATENCY = Table(
    name="latency",
    title="Table of the appendix: latency of world model and verifier, and net compute",
    studies=tuple(Study(task, model, ()) for task, model in EVERY_CELL),
    episodes=1,
    measure=measure,
    ran=lambda findings, study: _measured(findings, study) is not None,
    after=describe,
    extra=lambda findings: {
        "net_compute": [{"cell": name, "share": one and asdict(one)} for name, one, _ in net_compute(findings)]
    },
    claims=(
        Claim(
            '"Per CEM iteration, the IDM forward latency adds 11.5%, 8.9%, and 25.0% of world-model forward latency '
            'for Le-WM, PLDM, and NWM"; "for DINO-WM the ratio is higher, at 39.0%".',
            judge_overhead,
            paper="its own table says 33.7 % for NWM (67.3 of 199.9 ms), not 25.0 %, and 39.4 % for DINO-WM.",
        ),
        Claim(
            '"Ours reaches a given quality with strictly less total planning compute than Original."',
            judge_net,
            paper="about 0.7 times on DINO-WM, a tenth on Reacher.",
        ),
    ),
    legend=(
        f"One iteration of the task's usual search for one problem, mean of {REPEATS} with 95 % intervals, one thread;",
        "machine, device and clock as recorded in latencies.json. A busy machine makes wall time longer, CPU time not.",
        "published size: random weights; DINO-WM and NWM with 4 candidates of one step instead of 80 to 200.",
        "NWM's verifier looks at 16 tokens in ten Euler steps; what its goal cost draws and compares is not counted.",
        "paper: the published times, on a GPU. Net compute: the smallest share of pushes (DINO-WM) or of candidates",
        "(Reacher, λ 0.07) with which ACID's mean is as good as Original's final one, times 1 + the verifier's share;",
        "bootstrap over episodes.",
    ),
)
