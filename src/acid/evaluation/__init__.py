"""Closed-loop evaluation: which episodes, which agents, what happened, and what it means."""

from acid.evaluation.agents import Agent, Decision, NoOpAgent, PlanningAgent, PolicyAgent, RandomAgent, Situation
from acid.evaluation.cells import Bench, Cell, shipped
from acid.evaluation.conditions import BASELINE, CONDITIONS, Condition, condition
from acid.evaluation.engines import Engine, Local
from acid.evaluation.environments import as_task
from acid.evaluation.evaluate import Comparison, evaluate
from acid.evaluation.instances import load_instances, save_instances
from acid.evaluation.jobs import CellContender, Contender, Job
from acid.evaluation.play import Episode, play
from acid.evaluation.protocol import Instance, Instances, Protocol, draw_instances, plan_seed
from acid.evaluation.provenance import Provenance
from acid.evaluation.results import Summary, choose_lambda, summarise, summarise_rows
from acid.evaluation.rows import Row, RowFile, read_rows
from acid.evaluation.searches import SearchSpec
from acid.evaluation.statistics import (
    Interval,
    Paired,
    bootstrap_mean,
    bootstrap_rank_correlation,
    paired,
    rank_correlation,
    wilson,
)
from acid.evaluation.table import table

__all__ = [
    "BASELINE",
    "CONDITIONS",
    "Agent",
    "Bench",
    "Cell",
    "CellContender",
    "Comparison",
    "Condition",
    "Contender",
    "Decision",
    "Engine",
    "Episode",
    "Instance",
    "Instances",
    "Interval",
    "Job",
    "Local",
    "NoOpAgent",
    "Paired",
    "PlanningAgent",
    "PolicyAgent",
    "Protocol",
    "Provenance",
    "RandomAgent",
    "Row",
    "RowFile",
    "SearchSpec",
    "Situation",
    "Summary",
    "as_task",
    "bootstrap_mean",
    "bootstrap_rank_correlation",
    "choose_lambda",
    "condition",
    "draw_instances",
    "evaluate",
    "load_instances",
    "paired",
    "plan_seed",
    "play",
    "rank_correlation",
    "read_rows",
    "save_instances",
    "shipped",
    "summarise",
    "summarise_rows",
    "table",
    "wilson",
]
