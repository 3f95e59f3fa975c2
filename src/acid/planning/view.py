"""What a verifier is shown of an imagined trajectory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from acid.errors import PlanningError
from acid.types import ActionScaler, InverseDynamics, Trajectory, WorldModel

_TOLERANCE = 1e-4  # of a standard deviation: far below what a verifier can tell apart


@dataclass(frozen=True)
class VerifierView:
    """A verifier of other features or other action units than the world model's.

    features: what the verifier looks at, if not the latents themselves: [..., P, D] to [..., P', D'].
    units: the model's actions [..., H, A] in the units of those that the verifier infers, if they differ.
    """

    verifier: InverseDynamics
    features: Callable[[Tensor], Tensor] | None = None
    units: Callable[[Tensor], Tensor] | None = None

    def inferred(self, trajectory: Trajectory) -> Tensor:
        """The action that the verifier finds in each imagined transition, [B, N, H, A] in its units."""
        seen = trajectory.latents if self.features is None else self.features(trajectory.latents)
        return self.verifier.infer(seen[:, :, :-1], seen[:, :, 1:])

    def asked(self, trajectory: Trajectory) -> Tensor:
        """The actions that the trajectory was imagined for, [B, N, H, A] in the verifier's units."""
        return trajectory.actions if self.units is None else self.units(trajectory.actions)

    @property
    def tells(self) -> bool:
        """Whether the verifier knows anything about actions, as far as its report says."""
        return getattr(getattr(self.verifier, "report", None), "tells", True)

    def axes(self, part: str, *, like: Tensor) -> Tensor:
        """The directions of an action [A, k] that the verifier tells, or does not tell."""
        directions: Any = getattr(self.verifier, "directions", None)
        if directions is None:
            raise PlanningError(
                "the verifier does not say which directions of an action it tells: fit it again, or use part='all'"
            )
        return directions.part(part, like=like)

    def check_model(self, model: WorldModel) -> None:
        """A PlanningError if the verifier looks at the latents of another world model."""
        if self.features is None:
            check_fitted("verifier", self.verifier, model)

    def check_scaler(self, scaler: ActionScaler) -> None:
        """A PlanningError if the verifier was fitted with other action statistics than `scaler`, the planner's."""
        own: ActionScaler | None = getattr(self.verifier, "scaler", None)
        if own is None or self.units is not None or _agree(own, scaler):
            return
        raise PlanningError(
            f"the verifier was fitted with other action statistics ({own}) than the planner's ({scaler}): fit it with "
            "`scaler=model.scaler`, or pass VerifierView(verifier, units=...) that converts between them"
        )


def check_fitted(part: str, fitted: object, model: object) -> None:
    """A PlanningError if a verifier or policy was fitted to the latents of another checkpoint than the model's.

    fitted: its `fitted_to` is the `fingerprint` of that model; what does not have both is not checked.
    """
    known, found = getattr(fitted, "fitted_to", None), getattr(model, "fingerprint", None)
    if known is not None and found is not None and known != found:
        raise PlanningError(
            f"the {part} was fitted to latents of the world model {known}, not of this one, {found}: fit it again, or "
            "set its `fitted_to` to None if it shall be used all the same"
        )


def _agree(first: ActionScaler, second: ActionScaler) -> bool:
    """Whether two scalers normalise model actions alike, however they split them into environment steps."""
    if first.size != second.size:
        return False
    one, other = (list(zip(s.mean * s.frameskip, s.std * s.frameskip, strict=True)) for s in (first, second))
    return all(
        abs(m - n) <= _TOLERANCE * s and abs(s - t) <= _TOLERANCE * s for (m, s), (n, t) in zip(one, other, strict=True)
    )
