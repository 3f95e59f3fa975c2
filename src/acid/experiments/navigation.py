"""The paper's second table, right: NWM with CompACT on visual navigation, and what its costs know."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from acid import checkpoint
from acid.data import Episodes, split
from acid.evaluation import Interval, Paired, Protocol, bootstrap_mean, paired, read_rows
from acid.evaluation.conditions import WEIGHTED
from acid.evaluation.path_cases import draw_cases, save_cases
from acid.evaluation.protocol import Split
from acid.evaluation.table import markdown, p_value, percent
from acid.experiments import navigation_rollouts
from acid.experiments.cell import Cell
from acid.experiments.evaluate import Progress, evaluate, remember_lambdas
from acid.experiments.navigation_planning import MODEL, SCHEMES, TASK, Asked, NavigationJob
from acid.planning import CEM

LAMBDAS = (0.1, 0.3, 1.0, 3.0)  # to choose from
MAIN = "arc"  # the candidates that are refined
ITERATIONS = 3  # of the refined search
POOLED = ("prior", "chance", "turn", "original", "acid", "acid-path", "best")  # in the order of the table
REFINED = ("turn", "original", "acid")
NAMES = {"prior": "prior mean", "chance": "random cost", "turn": "turn penalty", "original": "Original"}
NAMES |= {"acid": "ACID", "acid-path": "ACID of path", "best": "best of pool"}
CHOSEN = ("acid", "acid-path", "turn")  # those of them whose λ is chosen
PUBLISHED = {"original": (1.3141, 0.3831), "acid": (1.2835, 0.3773)}  # ATE and RPE in waypoint units
CORRELATIONS = {
    "rank_goal": "goal cost with ATE",
    "rank_consistency": "consistency with ATE",
    "rank_turn": "turn penalty with ATE",
    "rank_consistency_turn": "consistency with turn penalty",
}


LEGEND = (
    "n paired held-out cases, goals 8 frames (2 s) ahead; J iterations; N 80, K 5, 3 rollouts a candidate. ATE and RPE",
    "without alignment, in waypoint units of 0.25 m, lower is better; 95 % intervals by bootstrap, sign-flip test.",
    "With J 1 all conditions rank the same rollouts.",
    "arc: constant curvature around the current speed; line: NWM's straight lines with a turn at the end.",
    "ACID of path: consistency of the places where actions lead instead of actions.",
    "collisions: plans that touch an obstacle when driven.",
    "published: the paper's ATE and RPE, models of full size on RECON.",
)


@dataclass(frozen=True)
class Line:
    """One condition. Errors are in waypoint units of 0.25 m unless they say otherwise."""

    candidates: str
    iterations: int
    condition: str
    lam: float | None
    ate: Interval
    rpe: Interval
    final_metres: Interval  # executed, to the goal's place
    collided: float  # share of the plans
    ate_difference: Paired | None  # from Original, on the same cases
    rpe_difference: Paired | None
    final_difference: Paired | None


@dataclass(frozen=True)
class NavigationTable:
    """Which part of the table to run, and where its rows are.

    data: draw the cases from this dataset, instead of using those that are shipped.
    """

    results: Path = Path("results")
    episodes: int = 200
    folder: Path | None = None
    data: Path | None = None
    select: int = 100  # cases that λ is chosen on

    @property
    def cell(self) -> Cell:
        return Cell(TASK, MODEL, self.folder)

    def choose(self, *, processes: int = 1, progress: Progress | None = None) -> str:
        """Choose the λs on cases that are not reported and both kinds of candidates."""
        self._draw_cases()
        asked = (Asked("original"), *(one for name in CHOSEN for one in _every_lambda(name)))
        work = [self._pool(scheme, asked, self._protocol("select")) for scheme in SCHEMES]
        evaluate(work, processes=processes, progress=progress)
        return remember_lambdas(self.cell, self.results)

    def run(self, *, processes: int = 1, progress: Progress | None = None) -> None:
        """Every condition, and rollouts under the true actions; what is in the results already is not run again.

        A λ that was not chosen yet is chosen first.
        """
        self._draw_cases()
        if not self.cell.lambdas.keys() >= set(CHOSEN):
            self.choose(processes=processes, progress=progress)
        navigation_rollouts.run_rollouts(self.cell, self._protocol("test"), self.results, progress=progress)
        evaluate(list(self._jobs()), processes=processes, progress=progress)

    def lines(self) -> list[Line]:
        """What the rows on disk say, at the chosen λ; what was not run is left out."""
        found = []
        for job in self._jobs():
            rows = read_rows([job.file]) if job.file.exists() else []
            found += [
                _line(job, name, lam, rows, self._rows(job, "original"))
                for name in POOLED
                if (lam := self._lam(name)) is not None or name not in WEIGHTED
                if _of(rows, name, lam)
            ]
        return found

    def against_turn(self) -> dict[tuple[str, int], Paired]:
        """ATE of ACID less that of the turn penalty on the same cases, by candidates and iterations."""
        searches = {(job.scheme, job.search.iterations): job for job in self._jobs()}
        rows = {search: [self._rows(job, name) for name in ("acid", "turn")] for search, job in searches.items()}
        return {
            search: paired(_values(acid, "ate"), _values(turn, "ate"))
            for search, (acid, turn) in rows.items()
            if acid and turn
        }

    def correlations(self) -> dict[str, dict[str, Interval]]:
        """For each kind of candidates: rank correlations inside a pool, averaged over the cases."""
        found = {}
        for scheme in SCHEMES:
            job = self._pool(scheme, (), self._protocol("test"))
            rows = _of(read_rows([job.file]), "original", None) if job.file.exists() else []
            if rows:
                found[scheme] = {name: bootstrap_mean([row[name] for row in rows]) for name in CORRELATIONS}
        return found

    def write(self) -> str:
        """Table, correlations and relations as Markdown, also written to the results folder, with JSON behind it."""
        lines, against_turn, correlations = self.lines(), self.against_turn(), self.correlations()
        parts = [markdown(*_table(lines), texts=3), "", *_compare(against_turn), *_tell(correlations), "", *LEGEND]
        content: dict[str, Any] = {
            "lines": [asdict(line) for line in lines],
            "acid_against_turn": [
                {"candidates": scheme, "iterations": iterations, **asdict(found)}
                for (scheme, iterations), found in against_turn.items()
            ],
            "correlations": {
                scheme: {n: asdict(i) for n, i in found.items()} for scheme, found in correlations.items()
            },
        }
        if navigation_rollouts.rollouts_file(self.results).is_file():
            rollouts = navigation_rollouts.Rollouts.load(navigation_rollouts.rollouts_file(self.results))
            relations = navigation_rollouts.relations(rollouts)
            parts += ["", *navigation_rollouts.describe(rollouts, relations)]
            content["consistency"] = navigation_rollouts.as_json(relations)
        text = "\n".join(parts)
        (self.results / "navigation.md").write_text(text + "\n")
        (self.results / "navigation.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return text

    def draw(self, folder: Path) -> list[Path]:
        """Consistency over the steps, rollouts frame by frame, and what the tokenizer keeps."""
        return navigation_rollouts.draw(self.cell, self._protocol("test"), self.results, folder)

    def _protocol(self, name: Split) -> Protocol:
        return self.cell.setup.protocol(episodes=self.episodes if name == "test" else self.select, split=name)

    def _draw_cases(self) -> None:
        """With a dataset: cases for both splits from the episodes that the world model never saw, kept for everyone."""
        if self.data is None:
            return
        episodes = Episodes(self.data, require=("pose", "world"))
        held_out = checkpoint.load(self.cell.root / "model").metadata["recipe"]["held_out"]
        context = self.cell.world_model().config.history
        for name in ("select", "test"):
            ids, protocol = split(len(episodes), held_out).held_out, self._protocol(name)
            cases = draw_cases(episodes, ids, TASK, protocol, context=context)
            save_cases(self.cell.cases_file(name), cases, protocol, TASK)

    def _jobs(self) -> Iterator[NavigationJob]:
        """Both kinds of candidates ranked in one pool, at every λ; then the main kind refined, at the chosen ones."""
        protocol = self._protocol("test")
        asked = tuple(a for name in POOLED for a in (_every_lambda(name) if name in WEIGHTED else [Asked(name)]))
        for scheme in SCHEMES:
            yield self._pool(scheme, asked, protocol)
        search = replace(self._search, iterations=ITERATIONS)
        for name in REFINED:
            if name not in WEIGHTED or self._lam(name) is not None:
                one = Asked(name, self._lam(name))
                yield NavigationJob(self.cell, MAIN, search, (one,), protocol, self.results)

    def _pool(self, scheme: str, asked: Sequence[Asked], protocol: Protocol) -> NavigationJob:
        return NavigationJob(self.cell, scheme, self._search, tuple(asked), protocol, self.results)

    @property
    def _search(self) -> CEM:
        search = self.cell.setup.search
        assert isinstance(search, CEM)
        return search

    def _lam(self, name: str) -> float | None:
        return self.cell.lambdas.get(name) if name in WEIGHTED else None

    def _rows(self, job: NavigationJob, name: str) -> list[dict[str, Any]]:
        """Another condition with the same candidates and iterations, at its chosen λ."""
        lam = self._lam(name)
        path = replace(job, asked=(Asked(name, lam),)).file
        return _of(read_rows([path]), name, lam) if path.exists() else []


def _every_lambda(name: str) -> list[Asked]:
    return [Asked(name, lam) for lam in LAMBDAS]


def _of(rows: Sequence[dict[str, Any]], name: str, lam: float | None) -> list[dict[str, Any]]:
    return [row for row in rows if (row["condition"], row["lambda"]) == (name, lam)]


def _line(
    job: NavigationJob, name: str, lam: float | None, rows: Sequence[dict[str, Any]], original: Sequence[Mapping]
) -> Line:
    mine = _of(rows, name, lam)

    def mean(column: str) -> Interval:
        return bootstrap_mean(list(_values(mine, column).values()))

    def difference(column: str) -> Paired | None:
        return None if not original or name == "original" else paired(_values(mine, column), _values(original, column))

    return Line(
        candidates=job.scheme,
        iterations=job.search.iterations,
        condition=name,
        lam=lam,
        ate=mean("ate"),
        rpe=mean("rpe"),
        final_metres=mean("final_error"),
        collided=sum(row["collided"] for row in mine) / len(mine),
        ate_difference=difference("ate"),
        rpe_difference=difference("rpe"),
        final_difference=difference("final_error"),
    )


def _values(rows: Sequence[Mapping[str, Any]], column: str) -> dict[Any, float]:
    return {(row["seed"], row["instance"]): float(row[column]) for row in rows}


def _table(lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    heading = ["candidates", "J", "condition", "λ", "n", "ATE", "against Original", "p", "RPE", "against Original"]
    heading += ["ATE m", "RPE m", "executed, to the goal m", "against Original", "collisions", "published"]
    return heading, [_cells(line) for line in lines]


def _cells(line: Line) -> list[str]:
    published = PUBLISHED.get(line.condition)
    return [
        line.candidates,
        str(line.iterations),
        NAMES[line.condition],
        "-" if line.lam is None else f"{line.lam:g}",
        str(line.ate.n),
        f"{line.ate.mean:.3f} [{line.ate.low:.3f}, {line.ate.high:.3f}]",
        _difference(line.ate_difference),
        "-" if line.ate_difference is None else p_value(line.ate_difference.p),
        f"{line.rpe.mean:.3f} [{line.rpe.low:.3f}, {line.rpe.high:.3f}]",
        _difference(line.rpe_difference),
        f"{line.ate.mean / 4:.3f}",
        f"{line.rpe.mean / 4:.3f}",
        f"{line.final_metres.mean:.3f} [{line.final_metres.low:.3f}, {line.final_metres.high:.3f}]",
        _difference(line.final_difference),
        percent(line.collided),
        "-" if published is None else f"{published[0]:.3f} / {published[1]:.3f}",
    ]


def _difference(found: Paired | None) -> str:
    return "-" if found is None else f"{found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _compare(against_turn: Mapping[tuple[str, int], Paired]) -> list[str]:
    """One line for each kind of search."""
    return [
        f"ATE of ACID less that of the turn penalty, {scheme}, J {iterations}: {_difference(found)}, "
        f"p {p_value(found.p)}, {found.n} cases"
        for (scheme, iterations), found in against_turn.items()
    ]


def _tell(correlations: Mapping[str, Mapping[str, Interval]]) -> list[str]:
    """One line for each kind of candidates."""
    return [
        f"Rank correlations inside a pool, {scheme}: "
        + "; ".join(f"{told} {navigation_rollouts.interval(found[name])}" for name, told in CORRELATIONS.items())
        for scheme, found in correlations.items()
    ]
