"""Search over action sequences, scored by a cost on the trajectory a world model imagines."""

from acid.planning.cem import CEM
from acid.planning.controller import Controller, Episode
from acid.planning.costs import (
    ActionConsistency,
    ActionNorm,
    Cost,
    Custom,
    Evaluation,
    GoalDistance,
    Term,
    acid_cost,
    goal_cost,
)
from acid.planning.gradient import Gradient
from acid.planning.icem import ICEM
from acid.planning.mppi import MPPI
from acid.planning.noise import derive_seed
from acid.planning.planner import Planner
from acid.planning.search import Search
from acid.planning.shooting import Shooting
from acid.planning.weights import Adaptive, Constant, Weight

__all__ = [
    "CEM",
    "ICEM",
    "MPPI",
    "ActionConsistency",
    "ActionNorm",
    "Adaptive",
    "Constant",
    "Controller",
    "Cost",
    "Custom",
    "Episode",
    "Evaluation",
    "GoalDistance",
    "Gradient",
    "Planner",
    "Search",
    "Shooting",
    "Term",
    "Weight",
    "acid_cost",
    "derive_seed",
    "goal_cost",
]
