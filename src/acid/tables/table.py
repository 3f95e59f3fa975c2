"""One mechanism for every table of the paper: which runs it is made of, its columns, and the claims it judges."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from acid.errors import AcidError, look_up
from acid.evaluation import BASELINE, Bench, Cell, CellContender, Job, Protocol, Row, SearchSpec, condition, shipped
from acid.evaluation.evaluate import share_work
from acid.evaluation.kits import kit_of
from acid.evaluation.protocol import Split
from acid.evaluation.results import Starts, counted, values_of
from acid.evaluation.rows import read_rows
from acid.evaluation.statistics import Interval, Paired, paired, share_or_mean
from acid.report.page import PageItem
from acid.tables.names import called_cell
from acid.tables.verdict import Verdict
from acid.tasks import Setup, task_class


@dataclass(frozen=True)
class Choice:
    """How the λ of a study's conditions is chosen, on episodes that are not reported."""

    lambdas: Mapping[str, tuple[float, ...]]  # those to choose from, by condition; empty for one without a weight
    episodes: int
    sizes: Mapping[str, int] = field(default_factory=dict)  # of the search, where they differ from the reported one
    shared: bool = False  # one λ for all tasks of the table, whatever was chosen for each


@dataclass(frozen=True)
class Study:
    """Conditions of one cell under one search. Sizes that are not given are the task's own."""

    task: str
    model: str
    conditions: tuple[str, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)  # samples, iterations, elites, horizon, execute, shrinks
    candidates: str | None = None  # the family that is searched; default: the first of the model's
    budget: int | None = None  # environment steps
    episodes: Mapping[str, int] = field(default_factory=dict)  # conditions that are run on fewer
    choice: Choice | None = None
    every_lambda: bool = False  # also run those that were not chosen
    options: Mapping[str, float] = field(default_factory=dict)  # of the search, e.g. std_init
    lam: float | None = None  # of its conditions; default: the one that was chosen
    baseline: str = BASELINE  # the condition that the others are compared with
    split: Split = "test"  # whose problems it is run on
    against: Study | None = None  # whose baseline the conditions are compared with; default: this study's own

    @property
    def setup(self) -> Setup:
        return task_class(self.task).setup

    def spec(self, **sizes: int) -> SearchSpec:
        kit = kit_of(self.model)
        family = self.candidates or kit.candidates[0]
        chosen = {**self.sizes, **self.options, **sizes}
        return SearchSpec.usual(self.setup, **chosen, candidates=family, repeats=kit.repeats)

    def protocol(self, episodes: int, split: Split | None = None) -> Protocol:
        usual = Protocol.of(self.setup, episodes=episodes, split=split or self.split)
        return usual if self.budget is None else replace(usual, budget=self.budget)


Side = tuple[Study, str]  # a condition of a study
Comparison = tuple[Side, Side]  # one less another


@dataclass(frozen=True)
class Options:
    """Which part of a table is run, where, and with what."""

    results: Path = Path("results")
    folder: Path | None = None  # cells of the user's own: this folder, or FOLDER/TASK/MODEL
    episodes: int | None = None
    tasks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    device: str = "cpu"
    precision: str = "float32"
    scale: str | None = None  # that every world model must have been trained at

    def check_scale(self, cell: Cell) -> None:
        recorded = cell.stored("model").metadata.get("scale")
        if self.scale is not None and recorded != self.scale:
            raise AcidError(f"{cell.root} was trained at the scale {recorded!r}, not {self.scale!r}")


@dataclass(frozen=True)
class Line:
    """One condition of one study: what its rows say."""

    study: Study
    condition: str
    lam: float | None
    rows: Sequence[Row]
    baseline: Sequence[Row]  # the study's baseline; empty if it was not run, or for the baseline itself
    every_start: Sequence[Row] = ()  # by the published protocol: the first draws, whether solved at the start or not

    @property
    def n(self) -> int:
        return len(self.rows)

    def mean(self, metric: str) -> Interval:
        return share_or_mean(list(values_of(self.rows, metric).values()))

    def difference(self, metric: str) -> Paired | None:
        """From the baseline, on the same episodes."""
        if not self.baseline:
            return None
        return paired(values_of(self.rows, metric), values_of(self.baseline, metric))


@dataclass(frozen=True)
class Column:
    """A heading, and what stands under it."""

    heading: str
    cell: Callable[[Line], str]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what our rows say about it: None while they are missing."""

    sentence: str
    judge: Callable[[Findings], Verdict | None]
    published: bool = True  # False: our own, beyond the paper
    paper: str = ""  # the paper's own numbers behind it, and where they do not agree with the sentence


@dataclass(frozen=True)
class Table:
    """A table or figure of the paper as a value."""

    name: str
    title: str
    studies: tuple[Study, ...]  # without conditions: a cell that something else is measured of
    episodes: int
    legend: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    texts: int = 0  # how many of the columns are texts
    metrics: tuple[str, ...] = ()  # whose means and differences are kept as JSON
    claims: tuple[Claim, ...] = ()
    before: Callable[[Findings], list[str]] = lambda findings: []  # text above the lines
    after: Callable[[Findings], list[str]] = lambda findings: []  # text below them
    extra: Callable[[Findings], Mapping[str, Any]] = lambda findings: {}  # more for the JSON
    measure: Callable[[Findings, Any], None] | None = None  # runs what is not an episode
    ran: Callable[[Findings, Study], bool] = lambda findings, study: any(
        findings.rows(study, name) for name in study.conditions
    )
    draw: Callable[[Findings, Path], list[Path]] = lambda findings, folder: []
    record: Callable[[Findings, Any], list[str]] | None = None  # films of the runs, once they are there; what to tell
    show: Callable[[Findings], Sequence[PageItem]] = lambda findings: []  # on the page


class Findings:
    """A table with the rows that are on disk."""

    def __init__(self, table: Table, options: Options) -> None:
        self.table = table
        self.options = options
        self._kept: dict[Any, list[Row]] = {}
        known_tasks, known_models = ({getattr(s, name): s for s in table.studies} for name in ("task", "model"))
        for name in options.tasks:
            look_up(known_tasks, name, f"task of the table {table.name}")
        for name in options.models:
            look_up(known_models, name, f"model of the table {table.name}")

    @property
    def file(self) -> Path:
        """Without its ending. A part has a file of its own and leaves that of the whole table alone."""
        part = [] if self.wanted == list(self.table.studies) else sorted({*self.options.models, *self.options.tasks})
        return self.options.results / "-".join([self.table.name, *part])

    @property
    def episodes(self) -> int:
        return self.table.episodes if self.options.episodes is None else self.options.episodes

    @cached_property
    def studies(self) -> list[Study]:
        """Those that were asked for and have weights."""
        found = [study for study in self.wanted if self.can_run(study)]
        for study in found[:1]:
            self._folder(study)  # complains about one cell that could be any of several
        if self.wanted and not found and self.options.folder is not None:
            raise AcidError(f"there are no cells of this table below {self.options.folder}: expected TASK/MODEL/model")
        for study in found if self.options.scale is not None else ():
            self.options.check_scale(self.cell(study))
        return found

    @property
    def wanted(self) -> list[Study]:
        options = self.options
        return [
            study
            for study in self.table.studies
            if (not options.tasks or study.task in options.tasks)
            and (not options.models or study.model in options.models)
        ]

    @property
    def _chosen_from(self) -> list[Study]:
        """Those whose episodes λ is chosen on: a shared λ needs all tasks of the table, whatever was asked for."""
        return [
            study
            for study in self.table.studies
            if study in self.studies or (study.choice and study.choice.shared and self.can_run(study))
        ]

    def size(self, study: Study) -> int:
        """On how many episodes the most frequent of its conditions is run."""
        return max((self._size(study, name) for name in study.conditions), default=self.episodes)

    def _size(self, study: Study, name: str) -> int:
        return min(study.episodes.get(name, self.episodes), self.episodes)

    def cell(self, study: Study) -> Cell:
        return Cell(study.task, study.model, self._folder(study), self.options.results)

    def bench(self, study: Study) -> Bench:
        """The study's cell at work."""
        options, protocol = self.options, study.protocol(self.size(study))
        return Bench(self.cell(study), study.spec(), protocol, device=options.device, precision=options.precision)

    def lam(self, study: Study, name: str) -> float | None:
        """The study's own λ or the chosen one; None for a condition without one, or if it was not chosen yet."""
        chosen = condition(name)
        if not chosen.weighted:
            return None
        if study.choice is not None and study.choice.shared and study.lam is None:
            return self._shared_lambda(study.choice, chosen.chosen_as)
        return self.cell(study).lambdas.get(chosen.chosen_as) if study.lam is None else study.lam

    def _shared_lambda(self, choice: Choice, name: str) -> float | None:
        """The λ with the lowest geometric mean of the tasks' errors; None until all were tried on enough episodes."""
        badness = {}
        for lam in choice.lambdas[name]:
            logs = []
            for study in self._chosen_from:
                path = self._file(study, name, study.spec(**choice.sizes), "select", lam)
                rows = counted(self.read(path), "strict")[: choice.episodes] if path.exists() else []
                if len(rows) < choice.episodes:
                    return None
                logs.append(math.log(fmean(row.final_error for row in rows)))
            badness[lam] = fmean(logs)
        return min(badness, key=lambda lam: badness[lam])

    def missing_lambdas(self) -> list[str]:
        """Conditions whose λ has to be chosen first."""
        return [
            f"{name} of {study.model} on {study.task}"
            for study in self.studies
            for name in study.conditions
            if condition(name).weighted and self.lam(study, name) is None
        ]

    def rows(self, study: Study, name: str, *, starts: Starts = "strict") -> list[Row]:
        """Of a condition at the chosen λ; none if it was not run."""
        if condition(name).weighted and self.lam(study, name) is None:
            return []
        path = self._file(study, name, study.spec(), study.split, self.lam(study, name))
        return counted(self.read(path), starts) if path.exists() else []

    def _file(self, study: Study, name: str, spec: SearchSpec, split: Split, lam: float | None) -> Path:
        contender = CellContender(self.cell(study), name, lam, spec)
        (path,) = Job(study.task, (contender,), (), study.protocol(1, split), self.options.results).files
        return path

    def read(self, path: Path) -> list[Row]:
        """The rows of a file, read once until it changes."""
        version = (path, path.stat().st_mtime_ns, path.stat().st_size)
        if version not in self._kept:
            self._kept[version] = read_rows([path])
        return self._kept[version]

    def lines(self) -> Iterator[Line]:
        """What was run, in the order of the table; a run that serves two studies is shown once."""
        shown: set[Any] = set()
        for study in self.studies:
            reference = study.against or study
            baseline = self.rows(reference, reference.baseline)
            for name in study.conditions:
                rows = self.rows(study, name)
                key = (study.task, study.model, name, study.spec(), self.lam(study, name), study.split)
                if rows and key not in shown:
                    shown.add(key)
                    own = study.model == reference.model and name == reference.baseline
                    against = [] if own else baseline
                    every_start = self.rows(study, name, starts="paper") if study.split == "test" else ()
                    yield Line(study, name, self.lam(study, name), rows, against, every_start)

    def compare(
        self, study: Study, name: str, other: str, metric: str, *, against: Study | None = None
    ) -> Paired | None:
        """One condition against another, perhaps of another study, on the same episodes; None while one is missing."""
        mine, theirs = self.rows(study, name), self.rows(against or study, other)
        return paired(values_of(mine, metric), values_of(theirs, metric)) if mine and theirs else None

    def gains(
        self,
        name: str,
        other: str,
        metric: str = "success",
        *,
        where: Callable[[Study], bool] = lambda study: True,
        label: Callable[[Study], str] = called_cell,
    ) -> dict[str, Paired | None]:
        """One condition less another in every study of the table that has both; None where rows are missing.

        The other one may also be a condition of the study that `against` names.
        """
        found = {}
        for study in filter(where, self.table.studies):
            against = study if other in study.conditions else study.against
            if name in study.conditions and against is not None and other in against.conditions:
                there = study in self.studies
                found[label(study)] = self.compare(study, name, other, metric, against=against) if there else None
        return found

    def pooled(
        self, runs: Iterable[tuple[Study, str]], *, metric: str = "success"
    ) -> dict[tuple[str, str, int, str], float] | None:
        """A number of every row of some conditions of some cells, all together; None while one of them is missing."""
        values = {}
        for study, name in runs:
            rows = self.rows(study, name)
            if not rows:
                return None
            values |= {(study.model, study.task, *pair): value for pair, value in values_of(rows, metric).items()}
        return values

    def gain_over(self, comparisons: Iterable[Comparison], *, metric: str = "success") -> Paired | None:
        """All comparisons of one condition with another together; None while rows of one of them are missing.

        A problem that several world models were tested on counts once, by the mean over them: what happens to one of
        them there is not independent of what happens to the others.
        """
        sides: dict[Any, list[tuple[float, float]]] = defaultdict(list)
        for (study, name), (other, theirs) in comparisons:
            mine, base = values_of(self.rows(study, name), metric), values_of(self.rows(other, theirs), metric)
            if not mine.keys() & base.keys():
                return None
            for pair in mine.keys() & base.keys():
                sides[study.task, *pair].append((mine[pair], base[pair]))
        means = ({key: fmean(pair[k] for pair in pairs) for key, pairs in sides.items()} for k in (0, 1))
        return paired(*means) if sides else None

    def jobs(self) -> list[Job]:
        """Everything that is reported; a run that serves two studies is done once, for the one with more episodes."""
        wanted: dict[tuple[Path, ...], Job] = {}
        for job in (job for study in self.studies for job in self._jobs(study)):
            files = tuple(job.files)
            if files not in wanted or wanted[files].size < job.size:
                wanted[files] = job
        return list(wanted.values())

    def choosing_jobs(self) -> list[Job]:
        """What λ is chosen from."""
        found = []
        for study in self._chosen_from:
            if study.choice is not None:
                protocol, spec = study.protocol(study.choice.episodes, "select"), study.spec(**study.choice.sizes)
                pairs = [(n, lam) for n, grid in study.choice.lambdas.items() for lam in grid or (None,)]
                found += self._group(study, pairs, spec, protocol)
        return found

    def _jobs(self, study: Study) -> Iterator[Job]:
        by_size: dict[int, list[tuple[str, float | None]]] = {}
        for name in study.conditions:
            by_size.setdefault(self._size(study, name), []).extend((name, lam) for lam in self._lambdas(study, name))
        for size, pairs in by_size.items():
            yield from self._group(study, pairs, study.spec(), study.protocol(size))

    def _lambdas(self, study: Study, name: str) -> Sequence[float | None]:
        if condition(name).weighted and study.every_lambda and study.choice is not None:
            return study.choice.lambdas[name]
        if condition(name).weighted and self.lam(study, name) is None:
            raise AcidError(f"no λ of {name} was chosen for {study.model} on {study.task}")
        return [self.lam(study, name)]

    def _group(
        self, study: Study, pairs: Sequence[tuple[str, float | None]], spec: SearchSpec, protocol: Protocol
    ) -> list[Job]:
        cell, options = self.cell(study), self.options
        contenders = [CellContender(cell, n, lam, spec, options.device, options.precision) for n, lam in pairs]
        for contender in contenders:
            contender.check(protocol)
        instances, batch = cell.instances(protocol), kit_of(study.model).batch
        return [Job(study.task, group, instances, protocol, options.results, batch) for group in share_work(contenders)]

    def _folder(self, study: Study) -> Path | None:
        folder = self.options.folder
        if folder is None:
            return None
        if (folder / "model").is_dir():
            if len({(s.task, s.model) for s in self.wanted}) > 1:
                raise AcidError(
                    f"{folder} is one cell, but the table has several: choose one with --tasks and --models"
                )
            return folder
        return folder / study.task / study.model

    def has_weights(self, study: Study) -> bool:
        """Whether there is a cell of its task and model, in the user's folder or among the shipped ones."""
        folder, cell = self.options.folder, (study.task, study.model)
        if folder is None:
            return "/".join(cell) in shipped()
        if (folder / "model").is_dir():
            return cell in {(one.task, one.model) for one in self.wanted}
        return (folder / study.task / study.model / "model").is_dir()

    def can_run(self, study: Study) -> bool:
        """Whether its cell is there, with a policy if all conditions need one, and another one to borrow from."""
        if not self.has_weights(study):
            return False
        cell, conditions = self.cell(study), [condition(name) for name in study.conditions]
        without = bool(conditions) and all("policy" in one.needs for one in conditions) and not cell.has("policy")
        borrows = any(one.borrows for one in conditions)
        return not without and (not borrows or cell.lender is not None)


def with_cells(tables: Iterable[Table], options: Options) -> list[Findings]:
    """Of every table that the user's folder has a cell for, or that needs none."""
    found = [Findings(table, options) for table in tables]
    having = [one for one in found if any(map(one.can_run, one.wanted))]
    if options.folder is not None and not having:
        raise AcidError(f"there are no cells below {options.folder}: expected TASK/MODEL/model")
    return [one for one in found if one in having or not one.wanted]
