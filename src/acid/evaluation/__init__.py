"""Closed-loop evaluation: which problems, who acts, what happened, and what it means."""

from acid.evaluation.agents import (
    Agent,
    Decision,
    GoalPolicy,
    NoOpAgent,
    PlanningAgent,
    PolicyAgent,
    RandomAgent,
)
from acid.evaluation.conditions import Condition, search_name
from acid.evaluation.instances import load_instances, save_instances
from acid.evaluation.protocol import Instance, Instances, Protocol, draw_instances, halves
from acid.evaluation.provenance import Provenance, fingerprint
from acid.evaluation.results import Summary, choose_lambda, summarise
from acid.evaluation.rows import RowFile, read_rows
from acid.evaluation.runner import Episode, play, run, same_in_a_file
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
    "Agent",
    "Condition",
    "Decision",
    "Episode",
    "GoalPolicy",
    "Instance",
    "Instances",
    "Interval",
    "NoOpAgent",
    "Paired",
    "PlanningAgent",
    "PolicyAgent",
    "Protocol",
    "Provenance",
    "RandomAgent",
    "RowFile",
    "Summary",
    "bootstrap_mean",
    "bootstrap_rank_correlation",
    "choose_lambda",
    "draw_instances",
    "fingerprint",
    "halves",
    "load_instances",
    "paired",
    "play",
    "rank_correlation",
    "read_rows",
    "run",
    "same_in_a_file",
    "save_instances",
    "search_name",
    "summarise",
    "table",
    "wilson",
]
