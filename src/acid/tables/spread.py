"""The paper's figure of spreads: how much the two costs differ between candidates, iteration by iteration."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from acid import tasks
from acid.errors import DataError, are_numbers
from acid.evaluation import Agent, Decision, Situation, condition
from acid.evaluation.jobs import Progress
from acid.evaluation.kits import kit_of
from acid.evaluation.play import play
from acid.evaluation.statistics import CONFIDENCE, Interval, percentile_interval
from acid.evaluation.table import markdown
from acid.files import read_json_object, write_text
from acid.report.chart import Chart, Level, Panel, Point, Series
from acid.report.style import Look
from acid.tables import deformable, navigation, planning
from acid.tables.names import EVERY_CELL, called
from acid.tables.table import Claim, Findings, Study, Table
from acid.tables.verdict import Verdict

FILE = "spreads.json"
EPISODES = 20
ORDER_OF_MAGNITUDE = 10.0
COLOURS = {"cube": "#0072b2", "reacher": "#d55e00", "pusht": "#009e73", "rope": "#882255", "granular": "#e69f00"}
RESAMPLES = 2000


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of both costs over the candidates of a pool, [pools, J] each."""

    goal: np.ndarray
    consistency: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.goal / self.consistency

    def drift(self) -> Interval:
        """By which factor the median ratio moves from the first to the last iteration, whichever way."""
        ends = self.ratio[:, [0, -1]]
        found = _medians(ends[(np.isfinite(ends) & (ends > 0)).all(1)])
        factors = np.exp(np.abs(np.log(found[:, 1] / found[:, 0])))
        return percentile_interval(factors, len(self.goal))


def _medians(values: np.ndarray) -> np.ndarray:
    """Medians over pools [pools, ...] as they are and of resamples, [1 + R, ...]; unusable values do not count."""
    usable = np.where((values > 0) & np.isfinite(values), values, np.nan)
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(values), size=(RESAMPLES, len(values)))
    return np.concatenate([np.nanmedian(usable, 0)[None], np.nanmedian(usable[drawn], 1)])


class _Tap:
    """Passes everything on to an agent, and records the spreads of its searches."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.pools: list[dict[str, Any]] = []

    def act(self, situation: Situation) -> Decision:
        decision = self.agent.act(situation)
        assert decision.plan is not None  # ACID plans
        for b, instance in enumerate(situation.instances):
            noted = {n: [float(f"{v:.5g}") for v in s[:, b].tolist()] for n, s in decision.plan.trace.spreads.items()}
            self.pools.append({"instance": instance, "plan": situation.plan, **noted})
        return decision


def file_of(findings: Findings, study: Study) -> Path:
    return findings.options.results / study.task / study.model / FILE


def _recorded(findings: Findings, study: Study) -> dict[str, Any]:
    """What spreads depend on."""
    checkpoints = findings.cell(study).fingerprints(["model", "verifier"])
    return {"checkpoints": checkpoints, "lambda": findings.lam(study, "acid"), "search": study.spec().name}


def load(findings: Findings, study: Study) -> Spreads | None:
    """What was measured; None if that was not done, or with other weights."""
    content = _read(findings, study)
    pools = content["pools"]
    return Spreads(*(np.array([pool[n] for pool in pools]) for n in ("goal", "consistency"))) if pools else None


def _read(findings: Findings, study: Study) -> dict[str, Any]:
    path, wanted = file_of(findings, study), _recorded(findings, study)
    if not path.is_file():
        return {**wanted, "pools": []}
    remedy = "delete it and run `acid reproduce spread` again"
    content = read_json_object(path, remedy=remedy)
    try:
        same = all(content[name] == value for name, value in wanted.items())
        if not all({"instance", "plan", "goal", "consistency"} <= pool.keys() for pool in content["pools"]):
            raise ValueError("a pool lacks an entry")
        spreads = [pool[name] for pool in content["pools"] for name in ("goal", "consistency")]
        if not all(map(are_numbers, spreads)) or len({len(values) for values in spreads}) > 1:
            raise ValueError("the spreads of a pool are not finite numbers, one per iteration")
        if not all(isinstance(pool["instance"], str) for pool in content["pools"]):
            raise ValueError("an instance is not a name")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); {remedy}") from error
    return content if same else {**wanted, "pools": []}


def measure(findings: Findings, progress: Progress) -> None:
    """Search every pool of some episodes with ACID; what was measured already is not measured again."""
    work = []
    for study in findings.studies:
        protocol = study.protocol(findings.episodes)
        kept = _read(findings, study)
        seen = {pool["instance"] for pool in kept["pools"]}
        work.append((study, kept, [i for i in findings.cell(study).instances(protocol) if i.id not in seen]))
    done, total = 0, sum(len(todo) for _, _, todo in work)
    for study, kept, todo in work:
        if todo:
            bench = findings.bench(study)
            tap, size = _Tap(condition("acid").build(bench, findings.lam(study, "acid"))), kit_of(study.model).batch
            with closing(tasks.make(study.task, size=bench.model.observation_size)) as task:
                for batch in (todo[first : first + size] for first in range(0, len(todo), size)):
                    play(task, tap, batch, protocol=bench.protocol)
                    content = {**kept, "pools": [*kept["pools"], *tap.pools]}
                    write_text(file_of(findings, study), json.dumps(content) + "\n")
                    done += len(batch)
                    progress(done, total)


def _found(findings: Findings) -> list[tuple[Study, Spreads]]:
    return [(study, found) for study in findings.studies if (found := load(findings, study)) is not None]


def describe(findings: Findings) -> list[str]:
    heading = ["model", "task", "pools", "σ_g first", "σ_g last", "σ_a first", "σ_a last", "σ_g/σ_a first"]
    heading += ["σ_g/σ_a last", "drift of the ratio"]
    rows = []
    for study, found in _found(findings):
        ends = [_medians(v[:, [0, -1]])[0] for v in (found.goal, found.consistency, found.ratio)]
        drift = found.drift()
        rows.append([study.model, study.task, str(len(found.goal)), *(f"{v:.3g}" for pair in ends for v in pair),
                     f"{drift.mean:.1f}× [{drift.low:.1f}, {drift.high:.1f}]"])  # fmt: skip
    return [markdown(heading, rows, texts=2)] if rows else []


def _by_model(findings: Findings) -> dict[str, dict[str, Spreads]] | None:
    """By model and task; None while a cell is missing."""
    found = _found(findings)
    if len(found) < len(SPREAD.studies):
        return None
    models = dict.fromkeys(study.model for study, _ in found)
    return {model: {s.task: one for s, one in found if s.model == model} for model in models}


def judge_models(findings: Findings) -> Verdict | None:
    """Whether σ_g differs by orders of magnitude between world models."""
    models = _by_model(findings)
    if models is None:
        return None
    levels = {model: _medians(np.concatenate([s.goal.ravel() for s in by.values()])) for model, by in models.items()}
    order = sorted(levels, key=lambda model: levels[model][0])
    factor = percentile_interval(levels[order[-1]] / levels[order[0]], len(SPREAD.studies))
    times = f"{factor.mean:.1f} [{factor.low:.1f}, {factor.high:.1f}]"
    told = f"The median σ_g of {called(order[-1])} is {times} times that of {called(order[0])}."
    if factor.low > ORDER_OF_MAGNITUDE:
        return Verdict("confirmed", told)
    return Verdict("contradicted" if factor.high < ORDER_OF_MAGNITUDE else "not confirmed", told)


def judge_tasks(findings: Findings) -> Verdict | None:
    """Whether the ratio depends on the task, the world model being the same: a test by ranks."""
    models = _by_model(findings)
    if models is None:
        return None
    tests = {model: stats.kruskal(*(_middle(s.ratio) for s in by.values())).pvalue for model, by in models.items()}
    alike = [called(model) for model, p in tests.items() if p >= 1 - CONFIDENCE]
    told = "; ".join(f"{called(model)} p {p:.2g}" for model, p in tests.items())
    numbers = f"Kruskal–Wallis test of the ratio of each pool: {told}."
    if alike:
        return Verdict("not confirmed", f"The tasks of {' and '.join(alike)} may have the same ratio.", numbers)
    return Verdict("confirmed", "With every world model the ratio differs between its tasks.", numbers)


def _middle(ratio: np.ndarray) -> np.ndarray:
    """The median ratio of each pool over its iterations."""
    usable = np.where((ratio > 0) & np.isfinite(ratio), ratio, np.nan)
    found = np.nanmedian(usable, 1)
    return found[np.isfinite(found)]


def judge_iterations(findings: Findings) -> Verdict | None:
    """Whether the ratio drifts more in Le-WM and PLDM than in DINO-WM; each by its task with the largest drift."""
    models = _by_model(findings)
    if models is None:
        return None
    drifts = {m: max((s.drift() for s in by.values()), key=lambda d: d.mean) for m, by in models.items()}
    told = "; ".join(f"{called(m)} {d.mean:.1f}× [{d.low:.1f}, {d.high:.1f}]" for m, d in drifts.items())
    numbers = f"Largest drift over a search: {told}."
    mild, others = drifts[deformable.MODEL], [drifts[model] for model in planning.MODELS]
    if all(other.low > mild.high for other in others):
        return Verdict("confirmed", "DINO-WM's ratio drifts less for certain.", numbers)
    if any(other.high < mild.low for other in others):
        return Verdict("contradicted", "DINO-WM's ratio drifts more for certain.", numbers)
    lean = "more" if mild.mean > max(other.mean for other in others) else "less"
    return Verdict(
        "not confirmed", f"The intervals overlap; by its median DINO-WM's ratio drifts {lean}, not certainly.", numbers
    )


def charts(findings: Findings) -> list[Chart]:
    found = _found(findings)
    if not found:
        return []
    kinds = {
        "σ_g": ("Spread of the goal cost, σ_g", "goal", "squared latent distance"),
        "σ_a": ("Spread of the consistency cost, σ_a", "consistency", "squared actions"),
        "σ_g/σ_a": ("Their ratio, σ_g/σ_a", "ratio", ""),
    }
    drawn = []
    for name, (title, kind, unit) in kinds.items():
        panels = []
        for model in dict.fromkeys(study.model for study, _ in found):
            series = [
                Series(Look(called(study.task), COLOURS[study.task]), _curve(getattr(one, kind)))
                for study, one in found
                if study.model == model
            ]
            panels.append(Panel(called(model), series, [Level(1.0, "equal spread")] if kind == "ratio" else []))
        text = "Within a pool of candidates: median over the pools at every iteration, a curve per task."
        drawn.append(Chart(title, text, panels, "iteration", f"{name} ({unit})" if unit else name, log_y=True))
    return drawn


def _curve(values: np.ndarray) -> list[Point]:
    medians = _medians(values)[0]
    return [Point(k + 1, float(v), note=f"{len(values)} pools") for k, v in enumerate(medians) if np.isfinite(v)]


SPREAD = Table(
    name="spread",
    title="Figure cost-std: the spread of the two costs within a pool, over the iterations of a search",
    studies=tuple(
        Study(task, model, ()) for task, model in EVERY_CELL if model != navigation.MODEL
    ),
    episodes=EPISODES,
    measure=measure,
    ran=lambda findings, study: load(findings, study) is not None,
    after=describe,
    claims=(
        Claim('"The absolute scale of σ_g differs by orders of magnitude across" world models.', judge_models,
              paper="read from its figure."),
        Claim('"Fixing the world model, the two spreads, and their ratio, take task-dependent values."', judge_tasks,
              paper="read from its figure."),
        Claim('In Le-WM and PLDM the ratio "shifts by up to an order of magnitude, whereas in DINO-WM [...] the ratio '
              'drifts more mildly."', judge_iterations, paper="read from its figure."),
    ),
    legend=(
        "A pool: the candidates of one problem in one iteration, searched with ACID's cost. Medians over pools, 95 %",
        "intervals by bootstrap over pools. drift: by which factor the median ratio moves from the first to the last",
        "iteration, whichever way. Orders of magnitude: a factor above 10.",
    ),
    show=charts,
)  # fmt: skip
