"""The few types that every room shares, with their shapes.

Letters used in every docstring: B problems, N candidates, H model steps, A numbers per model action,
a numbers per environment action, P tokens per latent, D numbers per token, J search iterations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from acid.errors import DataError, ShapeError

_MOST_FRAMESKIP = 10_000  # environment steps per model step; far above any real one


@runtime_checkable
class WorldModel(Protocol):
    """What a model must offer to be planned with.

    A stochastic model's `rollout` also takes the keyword `seeds: Sequence[int] | None = None`, one seed per problem:
    the same seed and latent must imagine the same in any batch. The planner finds the keyword and fills it.

    A model of several context frames may also take the keyword `past_actions: Tensor | None = None`, the normalised
    actions [B, T-1, A] between those frames, as given to `Planner.plan`.
    """

    def encode(self, observation: Any) -> Tensor:
        """Observations [B, ...], or several by name, to latents [B, P, D] ([B, T, P, D] for T frames, the last now)."""
        ...

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        """Start latents [B, P, D] and normalised actions [B, N, H, A] to imagined latents [B, N, H, P, D]."""
        ...


@runtime_checkable
class InverseDynamics(Protocol):
    """What a verifier must offer: the action behind a transition."""

    def infer(self, latent: Tensor, next_latent: Tensor) -> Tensor:
        """Latents [..., P, D] and their successors [..., P, D] to normalised actions [..., A]."""
        ...


@dataclass(frozen=True)
class ActionScaler:
    """Between environment actions (a numbers a step) and a model's actions (a block of steps, z-scored).

    The statistics come from the training split and travel with the checkpoint.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    frameskip: int = 1  # environment steps per model step

    def __post_init__(self) -> None:
        try:
            for name in ("mean", "std"):
                object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ShapeError(f"action statistics must be numbers, got {self.mean} and {self.std}") from error
        if len(self.mean) != len(self.std) or not self.mean:
            raise ShapeError(f"action statistics need a mean and a std per dimension, got {self.mean} and {self.std}")
        if not all(math.isfinite(value) for value in self.mean):
            raise DataError(f"the mean of actions must be finite, got {self.mean}; look for NaN in the actions")
        bad = [i for i, s in enumerate(self.std) if not (0 < s < math.inf)]
        if bad:
            raise DataError(
                f"action dimension {bad[0]} has standard deviation {self.std[bad[0]]}; a constant or non-finite action "
                "cannot be normalised: drop that dimension or collect more varied data"
            )
        if type(self.frameskip) is not int or not 1 <= self.frameskip <= _MOST_FRAMESKIP:
            raise ShapeError(f"the frameskip of actions must be a whole number of at least 1, got {self.frameskip}")

    @property
    def env_size(self) -> int:
        """a: numbers per environment action."""
        return len(self.mean)

    @property
    def size(self) -> int:
        """A: numbers per model action."""
        return self.env_size * self.frameskip

    def _statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        # Not `new_tensor`: on a GPU it would wait for all work under way.
        both = torch.tensor([self.mean, self.std], dtype=like.dtype).to(like.device, non_blocking=like.is_cuda)
        mean, std = both.repeat(1, self.frameskip)
        return mean, std

    def normalise(self, env_actions: Tensor) -> Tensor:
        """[..., H*frameskip, a] in environment units to [..., H, A] normalised."""
        env_actions = _real(env_actions)
        *lead, steps, size = env_actions.shape if env_actions.dim() > 1 else (0, 0)
        if size != self.env_size or steps % self.frameskip:
            raise ShapeError(
                f"environment actions must be [..., steps, {self.env_size}] with steps a multiple of {self.frameskip}, "
                f"got {list(env_actions.shape)}"
            )
        mean, std = self._statistics(env_actions)
        return (env_actions.reshape(*lead, steps // self.frameskip, self.size) - mean) / std

    def denormalise(self, actions: Tensor) -> Tensor:
        """[..., H, A] normalised to [..., H*frameskip, a] in environment units."""
        actions = _real(actions)
        *lead, horizon, size = actions.shape if actions.dim() > 1 else (0, 0)
        if size != self.size:
            raise ShapeError(f"model actions must end in size {self.size}, got {list(actions.shape)}")
        mean, std = self._statistics(actions)
        return (actions * std + mean).reshape(*lead, horizon * self.frameskip, self.env_size)


@dataclass(frozen=True)
class Problem:
    """B planning problems, already encoded."""

    start: Tensor  # [B, P, D], or [B, T, P, D] for T context frames
    goal: Tensor  # [B, P, D]
    past_actions: Tensor | None = None  # [B, T-1, A], normalised: what was done between the context frames

    @property
    def size(self) -> int:
        return self.goal.shape[0]

    @property
    def now(self) -> Tensor:
        """The current latent [B, P, D]: the last context frame."""
        return self.start if self.start.dim() == 3 else self.start[:, -1]

    def check(self, action_size: int | None = None) -> None:
        """A ShapeError unless start, goal and past actions are finite numbers of shapes that fit each other."""
        for name, values in (("start latents", self.start), ("goal latents", self.goal)):
            check_tensor(name, values)
        shape = list(self.start.shape)
        if len(shape) not in (3, 4) or not all(shape) or [shape[0], *shape[-2:]] != list(self.goal.shape):
            raise ShapeError(
                "a problem needs start latents [B, P, D] or [B, T, P, D] and goal latents [B, P, D] of the same sizes, "
                f"none of them 0, got start {shape} and goal {list(self.goal.shape)}"
            )
        check_finite("start latent", self.start)
        check_finite("goal latent", self.goal)
        if self.past_actions is None:
            return
        check_tensor("past actions", self.past_actions)
        frames, found = (1 if len(shape) == 3 else shape[1]), list(self.past_actions.shape)
        size = action_size or (found[-1] if found else 0)
        if found != [self.size, frames - 1, size]:
            wanted = f"[{self.size}, {frames - 1}, {action_size or 'A'}]"
            raise ShapeError(f"past actions must be [B, T-1, A] = {wanted} for start {shape}, got {found}")
        check_finite("past action", self.past_actions)

    def to(self, device: torch.device | None, dtype: torch.dtype | None = None) -> Problem:
        """The same problems on a device and in a precision; None leaves them as they are."""
        past = None if self.past_actions is None else self.past_actions.to(device, dtype)
        return Problem(self.start.to(device, dtype), self.goal.to(device, dtype), past)


@dataclass(frozen=True)
class Trajectory:
    """What the model imagines for a set of candidates."""

    latents: Tensor  # [B, N, H+1, P, D], the first one observed
    actions: Tensor  # [B, N, H, A], normalised


@dataclass(frozen=True)
class Trace:
    """What the search did, per iteration and problem (all [J, B])."""

    best: Tensor  # lowest total cost
    costs: Mapping[str, Tensor]  # mean over the elites, per term
    spreads: Mapping[str, Tensor]  # standard deviation over the candidates, per term (σ_g, σ_a)
    weights: Mapping[str, Tensor]  # what each term was multiplied by (w)


@dataclass(frozen=True, repr=False)
class Plan:
    """A chosen action sequence for each of B problems and what is known about it."""

    actions: Tensor  # [B, H, A], normalised
    env_actions: Tensor | None  # [B, H*frameskip, a] in environment units, if the planner has a scaler
    imagined: Tensor  # [B, H+1, P, D]
    costs: Mapping[str, Tensor]  # [B] per term, unweighted
    per_step: Mapping[str, Tensor]  # [B, H] per term that tells how much each step costs
    trace: Trace
    seconds: Mapping[str, float] = field(default_factory=dict)  # encode, rollout, one per cost term, total

    @property
    def consistency(self) -> Tensor | None:
        """[B, H]: `per_step` of the first term that has it, the consistency unless you wrote such a term yourself."""
        return next(iter(self.per_step.values()), None)

    def __repr__(self) -> str:
        problems, horizon, size = self.actions.shape
        costs = ", ".join(f"{name} {float(values.mean()):.4g}" for name, values in self.costs.items())
        return (
            f"Plan({problems} × {horizon} actions of {size} numbers; mean costs: {costs}; "
            f"{self.seconds.get('total', 0.0):.2f} s)"
        )


def _real(actions: Tensor) -> Tensor:
    """As floating-point numbers: whole ones would cut off the statistics they are scaled by."""
    if actions.is_complex():
        raise ShapeError(f"actions must be real numbers, got {actions.dtype}")
    return actions if actions.is_floating_point() else actions.to(torch.get_default_dtype())


def check_tensor(what: str, found: object) -> None:
    """A ShapeError unless something of the user's is a tensor of floating-point numbers; whole ones would overflow."""
    if not isinstance(found, Tensor) or not found.is_floating_point():
        told = f"a tensor of {found.dtype}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise ShapeError(f"{what} must be a tensor of floating-point numbers, got {told}")


def check_finite(name: str, tensor: Tensor) -> Tensor:
    """The tensor itself, or a ShapeError naming it when it holds NaN or infinity."""
    if not torch.isfinite(tensor).all():
        raise ShapeError(f"{name} holds NaN or infinite values (shape {list(tensor.shape)})")
    return tensor
