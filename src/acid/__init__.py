"""Planning with learned world models that checks what the model imagines.

A plan is a search over action sequences, scored by a cost on the trajectory a world model imagines. ACID is one term of
that cost: an inverse dynamics model reads the imagined transitions and must find the actions that were asked for.

    planner = Planner(model, acid_cost(verifier), CEM(), horizon=5)
    plan = planner.plan(observation, goal, seed=0)

    print(acid.evaluate("reacher", {"original": other, "acid": planner}, episodes=50))

These are the names for planning with a model, fitting its verifier and comparing planners. Tasks, data, training and
figures have rooms of their own (`acid.tasks`, `acid.data`, ...), whose dependencies are optional extras.
"""

import importlib
from typing import TYPE_CHECKING, Any

from acid import errors

if TYPE_CHECKING:
    from acid.evaluation import evaluate
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

# Where a name is: it is imported when it is first asked for, so that `acid --help` does not wait for torch.
_HOMES = {
    "types": ("ActionScaler", "InverseDynamics", "Plan", "Problem", "WorldModel"),
    "verifier": ("Verifier",),
    "evaluation": ("evaluate",),
}


def __getattr__(name: str) -> Any:
    if name in ("planning", "types", "verifier"):  # rooms that were always there
        return importlib.import_module(f"acid.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'acid' has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "planning")
    try:
        found = getattr(importlib.import_module(f"acid.{home}"), name)
    except ModuleNotFoundError as error:
        if home != "evaluation":
            raise
        raise errors.AcidError(
            f"acid.evaluate needs the package {error.name!r}; run: pip install 'acid-planning[evaluation]'"
        ) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


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
