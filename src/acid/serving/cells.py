"""A cell as a service: its planner, what it is told, and when its plans are trusted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from acid import tasks
from acid.errors import AcidError
from acid.evaluation import Bench, Cell, Condition, Episode, Protocol, SearchSpec, Situation, condition, play
from acid.evaluation.jobs import Progress
from acid.evaluation.kits import kit_of
from acid.planning import Proposal
from acid.serving.service import Inputs, Service
from acid.serving.trust import Trust, calibrate, check_level

SCORE = "consistency"


@dataclass(frozen=True)
class Offer:
    """A cell, and how it is planned with."""

    cell: Cell
    name: str  # of a condition that searches
    lam: float | None
    spec: SearchSpec
    device: str = "cpu"
    precision: str = "float32"

    def __post_init__(self) -> None:
        entry = condition(self.name)
        if not entry.searches or entry.choose is not None:
            raise AcidError(f"the condition {self.name!r} does not plan, so it cannot be served")
        if entry.disturb is not None or entry.search_of(self.spec) != self.spec:
            raise AcidError(f"the condition {self.name!r} is for evaluation only, so it cannot be served")
        if self.spec.execute is not None:
            raise AcidError("a server plans when it is asked, and clients execute what they like: leave --execute out")

    @classmethod
    def usual(cls, cell: Cell, name: str, lam: float | None, spec: SearchSpec, **where: Any) -> Offer:
        """With the λ that was chosen, unless there is one."""
        return cls(cell, name, cell.chosen_lambda(condition(name)) if lam is None else lam, spec, **where)

    @property
    def trust_file(self) -> Path:
        """Where a calibration is kept, in the user's folder."""
        cell = self.cell
        return (cell.user / cell.task_class.name / cell.model if cell.folder is None else cell.folder) / "trust.json"

    @property
    def made_with(self) -> dict[str, Any]:
        """What a calibration holds for, and nothing else."""
        fingerprints = self.cell.fingerprints(condition(self.name).needs)
        return {"condition": self.name, "lam": self.lam, "search": self.spec.name, "checkpoints": fingerprints}

    def trust(self) -> tuple[Trust | None, str]:
        """The calibration, if there is one for just this, and a sentence about it."""
        again = f"run: acid calibrate {self.cell.task}"
        if not self.trust_file.is_file():
            return None, f"plans are not flagged, because nothing is calibrated ({self.trust_file}); {again}"
        found = Trust.load(self.trust_file)
        for name, wanted in self.made_with.items():
            if found.made_with.get(name) != wanted:
                return None, f"plans are not flagged, because {self.trust_file} is of other {name}; {again}"
        return found, str(found)

    def service(self, bench: Bench, trust: Trust | None, **keys: str) -> Service:
        """A service of this planner; `keys` are those of `Inputs`."""
        image, context = (bench.model.observation_size, bench.model.observation_size, 3), bench.model.context
        return Service(
            bench.planner(condition(self.name), self.lam),
            Inputs(image if context == 1 else (context, *image), image, **keys),
            trust=trust,
            about={
                "server": "acid",
                "task": self.cell.task,
                "model": self.cell.model,
                "condition": self.name,
                "lam": self.lam,
                "search": self.spec.name,
            },
            initial=_initial(bench, condition(self.name)) if kit_of(self.cell.model).starts_from_last_action else None,
        )

    def bench(self, protocol: Protocol | None = None) -> Bench:
        entry, setup = condition(self.name), self.cell.task_class.setup
        bench = Bench(
            self.cell, self.spec, protocol or Protocol.of(setup), device=self.device, precision=self.precision
        )
        entry.check(bench, self.lam)
        return bench

    def calibrate(self, *, episodes: int, level: float, progress: Progress = lambda done, total: None) -> Trust:
        """Execute one plan for each of some held-out problems that are not reported, and keep the threshold."""
        check_level(level)
        task_class = self.cell.task_class
        steps = self.spec.horizon * task_class.frameskip
        protocol = Protocol(task_class.setup.goal_offset, steps, 0, episodes, "select")
        bench = self.bench(protocol)
        agent, instances = condition(self.name).build(bench, self.lam), list(self.cell.instances(protocol))
        played: list[Episode] = []
        batch = kit_of(self.cell.model).batch
        with closing(tasks.make(self.cell.task, size=bench.model.observation_size)) as task:
            for first in range(0, len(instances), batch):
                played += play(task, agent, instances[first : first + batch], protocol=protocol)
                progress(len(played), len(instances))
        scores = [float("nan") if e.consistency is None else e.consistency for e in played]
        good = [keeps_its_word(task_class, episode) for episode in played]
        found = calibrate(scores, good, score=SCORE, level=level, made_with=self.made_with)
        found.save(self.trust_file)
        return found


def keeps_its_word(task: type[tasks.Task], episode: Episode) -> bool:
    """Whether the goal was reached or, where a task has no such test, whether the plan came closer to it."""
    return episode.success if task.metric == "success" else episode.final_error < episode.initial_error


def _initial(
    bench: Bench, chosen: Condition
) -> Callable[[np.ndarray, np.ndarray, np.ndarray], Tensor | Proposal | None]:
    def start(observations: np.ndarray, goals: np.ndarray, last_actions: np.ndarray) -> Tensor | Proposal | None:
        return bench.initial(chosen, Situation(observations, goals, 0, [""] * len(goals), last_actions=last_actions))

    return start
