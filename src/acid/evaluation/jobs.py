"""Work that can be sent to another process: some contenders on the same instances, with rows written as they come."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from typing import Protocol as Interface

from acid import tasks
from acid.errors import AcidError
from acid.evaluation.agents import Agent
from acid.evaluation.cells import Bench, Cell
from acid.evaluation.conditions import condition
from acid.evaluation.play import Episode, play
from acid.evaluation.protocol import Instance, Protocol
from acid.evaluation.provenance import Provenance
from acid.evaluation.rows import Key, Row, RowFile
from acid.evaluation.searches import SearchSpec
from acid.tasks.restoring import check_restores

if TYPE_CHECKING:
    from acid.tasks import Task

Progress = Callable[[int, int], None]  # episodes done, episodes in all


class Opened(NamedTuple):
    """A contender that is ready to act."""

    agent: Agent
    provenance: Provenance
    observation_size: int | None  # pixels along each side of the images that it takes, if it cares


class Contender(Interface):
    """What is evaluated: how its rows describe it, and how its agent is made."""

    @property
    def model(self) -> str: ...

    @property
    def condition(self) -> str: ...

    @property
    def search(self) -> SearchSpec | None: ...

    @property
    def lam(self) -> float | None: ...

    def open(self, protocol: Protocol, others: Sequence[Contender], benches: dict[Any, Bench]) -> Opened:
        """Get ready. `others` of the same job may share work; what they load together is kept in `benches`."""
        ...


@dataclass(frozen=True)
class CellContender:
    """A condition of a cell."""

    cell: Cell
    condition: str
    lam: float | None
    spec: SearchSpec
    device: str = "cpu"
    precision: str = "float32"
    compile: bool = False  # let torch compile the networks
    shares: bool = True  # candidates with others, where the search has one iteration; else it tells what it imagined

    @property
    def model(self) -> str:
        return self.cell.model

    @property
    def search(self) -> SearchSpec | None:
        chosen = condition(self.condition)
        return chosen.search_of(self.spec) if chosen.searches else None

    def open(self, protocol: Protocol, others: Sequence[Contender], benches: dict[Any, Bench]) -> Opened:
        key = (self.cell, self.search or self.spec, *self.computing)
        bench = benches.setdefault(key, self._bench(protocol, [*others, self]))
        chosen = condition(self.condition)
        return Opened(chosen.build(bench, self.lam), bench.provenance(chosen), bench.model.observation_size)

    @property
    def computing(self) -> tuple[str, str, bool]:
        """Where and how its networks compute."""
        return self.device, self.precision, self.compile

    def check(self, protocol: Protocol) -> None:
        """Complain before the work begins."""
        condition(self.condition).check(self._bench(protocol, [self]), self.lam)

    @property
    def pooled(self) -> bool:
        """Whether it may share its candidates with others."""
        return self.shares and condition(self.condition).pools(self.search or self.spec)

    def _bench(self, protocol: Protocol, others: Sequence[Contender]) -> Bench:
        together = {other.condition for other in others} if self.shares else None
        spec = self.search or self.spec
        return Bench(
            self.cell,
            spec,
            protocol,
            device=self.device,
            precision=self.precision,
            compile=self.compile,
            pooled_with=together,
        )


@dataclass(frozen=True)
class Job:
    """Contenders that play the same instances one batch at a time."""

    task: str | Task  # a name, or the task itself if all is done in this process
    contenders: tuple[Contender, ...]
    instances: Sequence[Instance]
    protocol: Protocol
    results: Path
    batch: int = 8
    fresh: bool = False
    films: Path | None = None  # keep a film of every episode there, as CONDITION/INSTANCE.npz

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise AcidError(f"a batch must have at least 1 episode, got {self.batch}")

    @property
    def size(self) -> int:
        """Episodes in all."""
        return len(self.instances) * len(self.contenders)

    @property
    def files(self) -> list[Path]:
        return [self._file(contender) for contender in self.contenders]

    @property
    def task_class(self) -> type[Task] | Task:
        return tasks.task_class(self.task) if isinstance(self.task, str) else self.task

    @property
    def batches(self) -> list[Sequence[Instance]]:
        """What is planned for at once."""
        return [self.instances[first : first + self.batch] for first in range(0, len(self.instances), self.batch)]

    def run(self, progress: Progress | None = None, benches: dict[Any, Bench] | None = None) -> None:
        """Play what is not in the files yet. `benches` keeps what this job has loaded, for the next call."""
        report = progress or (lambda done, total: None)
        opened = self._open({} if benches is None else benches)
        with contextlib.ExitStack() as stack:
            files = self._open_files(stack, opened)
            done = self.size - len(self._missing(files, self.instances))
            report(done, self.size)
            if done == self.size:
                return
            task = stack.enter_context(self._open_task([one.observation_size for one in opened]))
            check_restores(task, self.instances[0].start_state)
            for batch in self.batches:
                for contender, (agent, provenance, _), file in zip(self.contenders, opened, files, strict=True):
                    todo = [instance for instance in batch if self._key(contender, instance) not in file]
                    if not todo:
                        continue
                    episodes = play(task, agent, todo, protocol=self.protocol, film=self.films is not None)
                    file.append([self._row(task, contender, provenance, episode) for episode in episodes])
                    for episode in episodes:
                        if self.films is not None and episode.film is not None:
                            episode.film.save(self.films / contender.condition / f"{episode.instance.id}.npz")
                    done += len(todo)
                    report(done, self.size)

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The files of this job, locked, for rows that are played elsewhere."""
        with contextlib.ExitStack() as stack:
            yield Ledger(self, self._open_files(stack, self._open({})))

    def _open(self, benches: dict[Any, Bench]) -> list[Opened]:
        return [contender.open(self.protocol, self.contenders, benches) for contender in self.contenders]

    def _open_files(self, stack: contextlib.ExitStack, opened: Sequence[Opened]) -> list[RowFile]:
        return [
            stack.enter_context(RowFile(path, self._same(contender, one.provenance), fresh=self.fresh))
            for path, contender, one in zip(self.files, self.contenders, opened, strict=True)
        ]

    def _missing(self, files: Sequence[RowFile], instances: Sequence[Instance]) -> list[Key]:
        pairs = list(zip(self.contenders, files, strict=True))
        keys = ((self._key(contender, instance), file) for contender, file in pairs for instance in instances)
        return [key for key, file in keys if key not in file]

    @contextlib.contextmanager
    def _open_task(self, sizes: Sequence[int | None]) -> Any:
        if not isinstance(self.task, str):
            yield self.task
            return
        wanted = {size for size in sizes if size is not None}
        if len(wanted) > 1:
            raise AcidError(f"agents that are compared must look at images of one size, got {sorted(wanted)}")
        with contextlib.closing(tasks.make(self.task, size=wanted.pop() if wanted else 64)) as task:
            yield task

    def _file(self, contender: Contender) -> Path:
        """Two contenders never share a file, so that they may run side by side."""
        task = self.task_class
        search = contender.search
        parts = [contender.condition]
        if search is not None:
            parts.append(search.label if search.horizon == task.setup.horizon else search.name)
        if contender.lam is not None:
            parts.append(f"lambda{contender.lam:g}")
        return self.results / task.name / contender.model / self.protocol.split / f"{'_'.join(parts)}.jsonl"

    def _group(self, contender: Contender) -> Key:
        return (self.task_class.name, contender.model, contender.condition, contender.search, contender.lam,
                self.protocol.split)  # fmt: skip

    def _key(self, contender: Contender, instance: Instance) -> Key:
        return (*self._group(contender), self.protocol.seed, instance.id)

    def _same(self, contender: Contender, provenance: Provenance) -> Mapping[str, Any]:
        return {
            "precision": getattr(contender, "precision", "float32"),
            "checkpoints": dict(provenance.checkpoints),
            "goal_offset_steps": self.protocol.goal_offset,
            "budget_steps": self.protocol.budget,
        }

    def _row(self, task: Task, contender: Contender, provenance: Provenance, episode: Episode) -> Row:
        instance = episode.instance
        path = episode.plan.round(5).tolist() if instance.path is not None and episode.plan is not None else None
        return Row(
            task=task.name,
            model=contender.model,
            condition=contender.condition,
            search=contender.search,
            lam=contender.lam,
            split=self.protocol.split,
            seed=self.protocol.seed,
            instance=instance.id,
            episode=instance.episode,
            start_step=instance.start_step,
            draw=instance.draw,
            solved_at_start=instance.solved,
            metric=task.metric,
            higher_is_better=task.higher_is_better,
            error_unit=task.error_unit,
            success=episode.success,
            steps=episode.steps,
            initial_error=episode.initial_error,
            best_error=episode.best_error,
            final_error=episode.final_error,
            errors=tuple(episode.errors),
            imagined_errors=tuple(episode.imagined_errors),
            missed_steps=episode.missed_steps,
            metrics=episode.metrics,
            plans=episode.decisions,
            plan_cpu_seconds=round(episode.cpu_seconds, 6) or None,
            plan_wall_seconds=round(episode.wall_seconds, 6) or None,
            plan_goal_cost=episode.goal_cost,
            plan_gap=episode.gap,
            plan_consistency=episode.consistency,
            plan=None if path is None else tuple(map(tuple, path)),
            pool=episode.pool,
            revision=provenance.revision,
            versions=dict(provenance.versions),
            **self._same(contender, provenance),
        )


@dataclass(frozen=True)
class Ledger:
    """Which episodes of a job are done, while its batches are played elsewhere."""

    job: Job
    files: Sequence[RowFile]

    @property
    def done(self) -> int:
        return self.job.size - len(self.job._missing(self.files, self.job.instances))

    def pieces(self) -> list[Job]:
        """A job for every batch that is not complete."""
        return [
            replace(self.job, instances=batch, fresh=False)
            for batch in self.job.batches
            if self.job._missing(self.files, batch)
        ]

    def keep(self, rows: Sequence[Row]) -> None:
        """Write the rows of a piece, each to its contender's file, but for those that are there."""
        for contender, file in zip(self.job.contenders, self.files, strict=True):
            own = [row for row in rows if row.group == self.job._group(contender)]
            file.append([row for row in own if row.key not in file])
