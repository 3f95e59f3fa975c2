"""The terms of a cost: what can be said against an imagined trajectory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from acid.errors import AcidWarning, PlanningError, ShapeError, check_offers
from acid.planning.view import VerifierView
from acid.planning.weights import Adaptive, Constant, Weight
from acid.types import ActionScaler, InverseDynamics, Trajectory, WorldModel, check_tensor


class Term(Protocol):
    """One part of a cost. B is the number of problems still being searched, which may shrink as problems converge.

    More methods are optional. `per_step(trajectory) -> [B, N, H]` tells what each step costs, where the cost is the
    mean over the steps; plans then report it. `check_scaler(scaler)` and `check_model(model)` may raise a PlanningError
    if the term does not suit the action statistics or the world model of the planner that it becomes part of.
    """

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> Weight: ...

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        """Imagined trajectories of N candidates and goal latents [B, P, D] to costs [B, N]."""
        ...


@dataclass(frozen=True)
class GoalDistance:
    """Squared distance of the last imagined latent to the goal (Eq. latent-cost), summed or averaged over P and D."""

    reduction: Literal["sum", "mean"] = "sum"
    weight: Weight = field(default_factory=Constant)
    name: str = "goal"

    def __post_init__(self) -> None:
        if self.reduction not in ("sum", "mean"):
            raise PlanningError(f"reduction of the goal distance must be 'sum' or 'mean', got {self.reduction!r}")

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        squared = (trajectory.latents[:, :, -1] - goal[:, None]).square()
        return squared.sum((-2, -1)) if self.reduction == "sum" else squared.mean((-2, -1))


@dataclass(frozen=True)
class DecodedDistance:
    """Distance between the pictures of the last imagined latent and of the goal, e.g. LPIPS.

    decode: latents [M, P, D] to images [M, S, S, 3] with values in 0..1.
    distance: images [M, 3, S, S] and one image [1, 3, S, S] to distances [M].
    """

    decode: Callable[[Tensor], Tensor]
    distance: Callable[[Tensor, Tensor], Tensor]
    weight: Weight = field(default_factory=Constant)
    name: str = "goal"

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        wanted = self._draw(goal)
        pairs = zip(trajectory.latents[:, :, -1], wanted.split(1), strict=True)
        return torch.stack([self.distance(self._draw(last), image) for last, image in pairs])

    def _draw(self, latents: Tensor) -> Tensor:
        return self.decode(latents).movedim(-1, -3)


@dataclass(frozen=True)
class ActionConsistency:
    """Whether each imagined transition is the one its action produces (Eq. cyc-cost).

    verifier: an inverse dynamics model, or a view of one that looks at other features or infers other units; residuals
        are measured in its units.
    path: where actions [..., H, A], in the verifier's units, lead: [..., H, D]. Then that is compared, for the actions
        asked for and for those inferred, instead of the actions themselves: what the verifier gets wrong at random
        cancels out along the way, what the model gets wrong always one way adds up.
    part: which directions of an action are compared. "all" is the paper's. "told" keeps those that two frames tell, so
        that only the imagination is checked. "untold" keeps the others: what the verifier infers there is the mean of
        the data, so this part asks for actions like the data's, whatever is imagined. Coordinates are then in
        standard deviations of the data. It needs a verifier with `directions`, as `Verifier.fit` measures them.
    """

    verifier: InverseDynamics | VerifierView
    weight: Weight = field(default_factory=Adaptive)
    name: str = "consistency"
    path: Callable[[Tensor], Tensor] | None = None
    part: Literal["all", "told", "untold"] = "all"

    def __post_init__(self) -> None:
        check_offers(f"the verifier of term {self.name!r}", self.view.verifier, "infer")
        if self.part != "all":
            if self.path is not None:
                raise PlanningError(f"choose a path or part={self.part!r} of term {self.name!r}, not both")
            self.view.axes(self.part, like=torch.empty(0))  # complains where there is no such part
        if not (self.weight.off or self.view.tells):
            warnings.warn(
                f"the verifier of the cost term {self.name!r} tells nothing about actions, so the term only prefers "
                "usual ones; print its report, which says what to look for",
                AcidWarning,
                stacklevel=3,
            )

    @property
    def view(self) -> VerifierView:
        return self.verifier if isinstance(self.verifier, VerifierView) else VerifierView(self.verifier)

    def check_model(self, model: WorldModel) -> None:
        """A PlanningError if the verifier was fitted to the latents of another world model."""
        self.view.check_model(model)

    def check_scaler(self, scaler: ActionScaler) -> None:
        """A PlanningError if the verifier infers actions in other units than the planner's."""
        self.view.check_scaler(scaler)

    def differences(self, trajectory: Trajectory) -> Tensor:
        """a_t − G(ẑ_t, ẑ_{t+1}) as [B, N, H, A], or its part, or of where they lead as [B, N, H, D]."""
        inferred, asked = self.view.inferred(trajectory), self.view.asked(trajectory)
        check_tensor("what infer returns", inferred)
        if inferred.shape != asked.shape:
            raise ShapeError(
                f"the verifier of term {self.name!r} returned actions {list(inferred.shape)} for candidates "
                f"{list(asked.shape)}; it must be fitted to the model's own normalised action blocks"
            )
        if self.path is not None:
            return self.path(asked) - self.path(inferred)
        difference = asked - inferred
        if self.part == "all":
            return difference
        return difference @ self.view.axes(self.part, like=difference)

    def per_step(self, trajectory: Trajectory) -> Tensor:
        """Residuals ‖a_t − G(ẑ_t, ẑ_{t+1})‖² as [B, N, H], or those of where the actions lead."""
        return self.differences(trajectory).square().sum(-1)

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        return self.per_step(trajectory).mean(-1)


@dataclass(frozen=True)
class ActionNorm:
    """Mean over H of ‖a_t‖²: the control that tells consistency from a mere preference for small actions."""

    weight: Weight = field(default_factory=Adaptive)
    name: str = "action_norm"

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        return trajectory.actions.square().sum(-1).mean(-1)


@dataclass(frozen=True)
class Custom:
    """A user's own cost: `fn(trajectory, goal) -> [B, N]`."""

    fn: Callable[[Trajectory, Tensor], Tensor]
    name: str = "custom"
    weight: Weight = field(default_factory=Constant)

    def __call__(self, trajectory: Trajectory, goal: Tensor) -> Tensor:
        return self.fn(trajectory, goal)
