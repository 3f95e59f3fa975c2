"""The front door: compare planners, or any agents, on paired held-out episodes of any task."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acid import tasks
from acid.errors import AcidError, check_offers, did_you_mean, look_up
from acid.evaluation.agents import Agent, PlanningAgent
from acid.evaluation.conditions import BASELINE, condition
from acid.evaluation.engines import Engine, Local
from acid.evaluation.environments import as_task, draw_from_environment
from acid.evaluation.jobs import CellContender, Contender, Job, Opened, Progress
from acid.evaluation.protocol import Instance, Protocol, Split
from acid.evaluation.provenance import Provenance
from acid.evaluation.results import Starts, Summary, counted, summarise_rows, values_of
from acid.evaluation.rows import Row, read_rows
from acid.evaluation.searches import SearchSpec
from acid.evaluation.statistics import Paired, paired
from acid.evaluation.table import table
from acid.files import check_name
from acid.planning import Controller, Planner
from acid.tasks import Task


@dataclass(frozen=True)
class AgentContender:
    """An agent that the caller has made."""

    condition: str
    agent: Agent
    model: str
    search: SearchSpec | None = None
    observation_size: int | None = None
    lam: float | None = None

    def open(self, protocol: Protocol, others: Sequence[Contender], benches: dict[Any, Any]) -> Opened:
        return Opened(self.agent, Provenance(), self.observation_size)


@dataclass(frozen=True)
class Comparison:
    """Rows of every agent on the same episodes, and their summary."""

    rows: Sequence[Row]
    baseline: str

    def summaries(self, *, metric: str | None = None, starts: Starts = "strict") -> list[Summary]:
        """One per agent, with intervals, each compared with the baseline on the same episodes."""
        return summarise_rows(self.rows, metric=metric, starts=starts, against=self.baseline)

    def difference(self, agent: str, other: str, *, metric: str | None = None) -> Paired:
        """The mean of one agent less that of another on the episodes that both played, with interval and test."""
        name = metric or self.rows[0].metric
        return paired(*(values_of(self._counted(one), name) for one in (agent, other)))

    def _counted(self, agent: str) -> list[Row]:
        look_up({row.condition: row for row in self.rows}, agent, "agent")
        found = [row for row in self.rows if row.condition == agent]
        if len({row.group for row in found}) > 1:
            raise AcidError(f"{agent!r} was played with several λ; compare them by the table")
        return counted(found, "strict")

    def table(self) -> str:
        return table(self.summaries())

    def __str__(self) -> str:
        return self.table()


def evaluate(
    task: str | Task | Any,
    agents: Mapping[str, Planner | Controller | Agent | CellContender],
    *,
    episodes: int = 200,
    instances: Sequence[Instance] | None = None,
    split: Split = "test",
    seed: int = 0,
    goal_offset: int | None = None,
    budget: int | None = None,
    baseline: str | None = None,
    results: Path | None = None,
    engine: Engine | None = None,
    batch: int = 8,
    fresh: bool = False,
    progress: Progress | None = None,
    **environment: Any,
) -> Comparison:
    """Play the same episodes with every agent and compare the outcomes in pairs.

    task: the name of a registered task, `package.module:Class`, a `Task`, or a gymnasium environment with `get_state`
        and `set_state`; how such an environment is observed and when it succeeds may be told by the keywords of
        `as_task`.
    agents: by name. A planner executes whole plans; a controller says how much of a plan is executed.
    instances: starts and goals; by default those that are shipped with a task, or drawn by acting at random.
    goal_offset, budget: in environment steps; by default the task's own.
    baseline: what the others are compared with; "original" if there is one, else the first.
    results: keep rows in this folder, and run only what is missing there; by default rows are kept in memory.
    """
    if not isinstance(agents, Mapping):
        raise AcidError(f"agents are given by name, such as {{'mine': planner}}, got a {type(agents).__name__}")
    if not agents:
        raise AcidError("there are no agents to evaluate")
    known = [name for function in (as_task, evaluate) for name in inspect.signature(function).parameters]
    for name in environment:
        if name not in known:
            raise AcidError(f"evaluate has no option {name!r}{did_you_mean(name, known)}")
    if isinstance(task, str) and environment:
        raise AcidError(f"{', '.join(environment)}: the task {task!r} says itself how it is observed and judged")
    chosen: str | Task = task if isinstance(task, str) else as_task(task, **environment)
    described = tasks.task_class(chosen) if isinstance(chosen, str) else chosen
    protocol = Protocol.of(described.setup, episodes=episodes, split=split, seed=seed)
    given = {"goal_offset": goal_offset, "budget": budget}
    protocol = replace(protocol, **{name: value for name, value in given.items() if value is not None})
    contenders = [_contender(name, agent, described) for name, agent in agents.items()]
    if instances is None:
        instances = _instances(chosen, contenders, protocol)
    if not len(instances):
        raise AcidError("there are no instances to play")
    if not all(isinstance(one, Instance) for one in instances):
        raise AcidError(f"instances must be a list of Instance, got {type(instances[0]).__name__}")
    names = [contender.condition for contender in contenders]
    against = baseline or (BASELINE if BASELINE in names else names[0])
    if against not in names:
        raise AcidError(f"the baseline {against!r} is not among the agents {names}")
    for contender in contenders:
        if isinstance(contender, CellContender):
            if contender.cell.task_class.name != described.name:
                raise AcidError(f"a cell of {contender.cell.task!r} cannot be evaluated on {described.name!r}")
            contender.check(protocol)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if results is None else Path(results)
        jobs = [Job(chosen, group, instances, protocol, folder, batch, fresh) for group in share_work(contenders)]
        files = [path for job in jobs for path in job.files]
        if twice := [path for path in files if files.count(path) > 1]:
            raise AcidError(f"two agents would write the same rows, {twice[0].relative_to(folder)}; leave one out")
        (engine or Local()).run(jobs, progress or (lambda done, total: None))
        wanted = {(seed, instance.id) for instance in instances}
        rows = [row for row in read_rows(files) if row.pair in wanted]
    return Comparison(rows, against)


def share_work(contenders: Sequence[Contender]) -> list[tuple[Contender, ...]]:
    """Groups that become one job each: contenders that choose from the same candidates form one, others are alone."""
    groups: dict[Any, list[Contender]] = {}
    for number, contender in enumerate(contenders):
        key: Any = number
        if isinstance(contender, CellContender) and contender.pooled:
            key = (contender.cell, contender.spec, *contender.computing, condition(contender.condition).proposes)
        groups.setdefault(key, []).append(contender)
    return [tuple(group) for group in groups.values()]


def _contender(name: str, agent: Planner | Controller | Agent | CellContender, task: Task | type[Task]) -> Contender:
    if isinstance(agent, CellContender):
        return agent
    check_name(name, "name of an agent", AcidError)
    if isinstance(agent, Planner):
        agent = Controller(agent, agent.horizon)
    if not isinstance(agent, Controller):
        check_offers(f"the agent {name!r}", agent, "act")
        return AgentContender(name, agent, type(agent).__name__)
    if agent.warm_start:
        raise AcidError(f"{name}: episodes of a batch end at different times, so a controller cannot warm-start here")
    planner = agent.planner
    if planner.scaler is not None and planner.scaler.frameskip != task.frameskip:
        raise AcidError(
            f"{name}: its model takes {planner.scaler.frameskip} environment steps per model step, the task "
            f"{task.name!r} {task.frameskip}; of an environment, tell it by frameskip={planner.scaler.frameskip}"
        )
    spec = SearchSpec.of(planner.search, horizon=planner.horizon, repeats=planner.repeats)
    size = getattr(planner.model, "observation_size", None)
    model = type(planner.model).__name__
    return AgentContender(name, PlanningAgent(planner, agent.execute), model, spec, size)


def _instances(task: str | Task, contenders: Sequence[Contender], protocol: Protocol) -> Sequence[Instance]:
    cells = [contender.cell for contender in contenders if isinstance(contender, CellContender)]
    if cells:
        return cells[0].instances(protocol)
    if isinstance(task, str) and task in tasks.TASKS:
        from acid.evaluation.cells import ASSETS
        from acid.evaluation.instances import load_instances

        return load_instances(ASSETS / task / f"instances-{protocol.split}.jsonl", protocol, task)
    return draw_from_environment(tasks.make(task) if isinstance(task, str) else task, protocol)
