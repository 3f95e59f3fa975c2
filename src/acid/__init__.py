"""Planning with learned world models, verified by cycle action consistency.

A plan is a search over action sequences, scored by a cost on the trajectory a world model imagines. ACID is one term of
that cost: an inverse dynamics model reads the imagined transitions and must find the actions that were asked for.

    planner = Planner(model, acid_cost(verifier), CEM(), horizon=5)
    plan = planner.plan(observation, goal, seed=0)

    print(acid.evaluate("reacher", {"original": other, "acid": planner}, episodes=50))

These are the names for planning with a model, fitting its verifier and comparing planners. Tasks, data, training and
figures have rooms of their own (`acid.tasks`, `acid.data`, ...), whose dependencies are optional extras.
"""

from typing import Any

from acid import errors
from acid.planning import (
    CEM,
    ICEM,
    MPPI,
    ActionConsistency,
    ActionNorm,
    Adaptive,
    Constant,
    Controller,
    Cost,
    Custom,
    GoalDistance,
    Gradient,
    Planner,
    Shooting,
    VerifierView,
    acid_cost,
    goal_cost,
)
from acid.types import ActionScaler, InverseDynamics, Plan, Problem, WorldModel
from acid.verifier import Verifier

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`acid.evaluate`, loaded when it is first asked for: it needs the extra packages of evaluation."""
    if name != "evaluate":
        raise AttributeError(f"module 'acid' has no attribute {name!r}")
    try:
        from acid.evaluation import evaluate
    except ModuleNotFoundError as error:
        raise errors.AcidError(
            f"acid.evaluate needs the package {error.name!r}; run: pip install 'acid-planning[evaluation]'"
        ) from error
    return evaluate


__all__ = [
    "CEM",
    "ICEM",
    "MPPI",
    "ActionConsistency",
    "ActionNorm",
    "ActionScaler",
    "Adaptive",
    "Constant",
    "Controller",
    "Cost",
    "Custom",
    "GoalDistance",
    "Gradient",
    "InverseDynamics",
    "Plan",
    "Planner",
    "Problem",
    "Shooting",
    "Verifier",
    "VerifierView",
    "WorldModel",
    "__version__",
    "acid_cost",
    "errors",
    "evaluate",
    "goal_cost",
]
