"""Search over action sequences, scored by a cost on the trajectory a world model imagines."""

from collections.abc import Mapping

from acid.planning.cem import CEM
from acid.planning.controller import Controller, Execution
from acid.planning.costs import Cost, Evaluation, acid_cost, goal_cost
from acid.planning.gradient import Gradient
from acid.planning.icem import ICEM
from acid.planning.mppi import MPPI
from acid.planning.noise import derive_seed
from acid.planning.observer import Iteration, Observer
from acid.planning.parametrisation import Arc, Free, HeadedLine, Parametrisation, StraightLine
from acid.planning.parts import PartDistances, Parts
from acid.planning.planner import Planner
from acid.planning.pool import Pool, draw_pool
from acid.planning.proposals import Between, PolicyProposal, PriorProposal, Proposal, Remainder, Several
from acid.planning.rows import Rows
from acid.planning.search import Search, Start
from acid.planning.shooting import Shooting
from acid.planning.terms import ActionConsistency, ActionNorm, Custom, DecodedDistance, GoalDistance, Term
from acid.planning.view import VerifierView
from acid.planning.weights import Adaptive, Constant, Weight

SEARCHES: Mapping[str, type] = {"cem": CEM, "icem": ICEM, "mppi": MPPI, "gradient": Gradient, "shooting": Shooting}

__all__ = [
    "CEM",
    "ICEM",
    "MPPI",
    "SEARCHES",
    "ActionConsistency",
    "ActionNorm",
    "Adaptive",
    "Arc",
    "Between",
    "Constant",
    "Controller",
    "Cost",
    "Custom",
    "DecodedDistance",
    "Evaluation",
    "Execution",
    "Free",
    "GoalDistance",
    "Gradient",
    "HeadedLine",
    "Iteration",
    "Observer",
    "Parametrisation",
    "PartDistances",
    "Parts",
    "Planner",
    "PolicyProposal",
    "Pool",
    "PriorProposal",
    "Proposal",
    "Remainder",
    "Rows",
    "Search",
    "Several",
    "Shooting",
    "Start",
    "StraightLine",
    "Term",
    "VerifierView",
    "Weight",
    "acid_cost",
    "derive_seed",
    "draw_pool",
    "goal_cost",
]
