"""World models with `encode(dict)` and `unroll(z, actions)` in our planner.

Those of jepa-wms, which are JEPA-WM, DINO-WM and V-JEPA 2-AC, and others with these two methods:

    encode({"visual": [B, T, C, H, W] of 0 to 255, "proprio": [B, T, p]})  tokens [B, T, V, h, w, D], or by name
    unroll(z, actions [H, B, A])                                            the same, time first: [T+H, B, ...]

Nothing of jepa-wms is part of this package; a model is passed in as it was loaded, e.g. by torch.hub.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from acid.errors import PlanningError, ShapeError, some
from acid.planning import Parts
from acid.types import ActionScaler

Observation = Tensor | Mapping[str, Tensor]


def as_video(observation: Observation) -> dict[str, Tensor]:
    """Pixels uint8 [B, S, S, 3] or [B, T, S, S, 3], alone or named "visual" beside "proprio", as encoders take them."""
    named = {"visual": observation} if isinstance(observation, Tensor) else dict(observation)
    if "visual" not in named or named["visual"].dtype != torch.uint8 or named["visual"].shape[-1] != 3:
        raise ShapeError(
            "an observation needs uint8 pixels [B, S, S, 3] or [B, T, S, S, 3], alone or named 'visual'; give "
            "`preprocess` for anything else"
        )
    single = named["visual"].dim() == 4
    timed = {name: value[:, None] if single else value for name, value in named.items()}
    return timed | {"visual": timed["visual"].movedim(-1, -3).float()}


class UnrollModel(nn.Module):
    """Such a model as a world model of ours.

    scaler: the statistics that its training normalised actions with; without them, plan in its units (`action_size`).
    preprocess: from what `plan` is given to what its `encode` takes, e.g. several cameras, its own preprocessor.

    Tokens of all sources are kept one after another, [B, T, P, D]. `parts` tells them apart once something was encoded.
    """

    def __init__(
        self,
        network: nn.Module,
        scaler: ActionScaler | None = None,
        *,
        preprocess: Callable[[Any], Any] = as_video,
    ) -> None:
        super().__init__()
        if missing := [name for name in ("encode", "unroll") if not hasattr(network, name)]:
            raise PlanningError(
                f"a {type(network).__name__} has no {some(missing)}, which a model needs to be unrolled"
            )
        self.network: Any = network.eval()
        self.scaler = scaler
        self.preprocess = preprocess
        self._shapes: dict[str, torch.Size] = {}  # of the tokens of each source, without their numbers
        self._wrap: Callable[[dict[str, Tensor]], Any] | None = None  # None: a model with one source, a plain tensor

    @property
    def parts(self) -> Parts:
        if not self._shapes:
            raise PlanningError("which tokens a latent has is known once something was encoded; call `encode` first")
        return Parts({name: shape.numel() for name, shape in self._shapes.items()}, along="tokens")

    def encode(self, observation: Any) -> Tensor:
        """Latents [B, T, P, D]."""
        found = self.network.encode(self.preprocess(observation))
        self._wrap = None if isinstance(found, Tensor) else _like(found)
        named = _named(found)
        self._shapes = {name: value.shape[2:-1] for name, value in named.items()}
        return self._pack(named)

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        """Latents [B, P, D] or [B, T, P, D] and actions [B, N, H, A] to imagined latents [B, N, H, P, D]."""
        context = latent if latent.dim() == 4 else latent.unsqueeze(1)
        problems, candidates, horizon, _ = actions.shape
        start = self._unpack(context.repeat_interleave(candidates, 0))
        unrolled = self.network.unroll(start, actions.flatten(0, 1).transpose(0, 1))
        imagined = self._pack(_named(unrolled))  # [T + H, B · N, P, D]
        if imagined.shape[:2] != (context.shape[1] + horizon, problems * candidates):
            raise ShapeError(
                f"unroll must return [T + H, B, ...] = [{context.shape[1] + horizon}, {problems * candidates}, ...], "
                f"got {list(imagined.shape[:2])} first"
            )
        return imagined[-horizon:].transpose(0, 1).unflatten(0, (problems, candidates))

    def _pack(self, named: Mapping[str, Tensor]) -> Tensor:
        return self.parts.join({name: named[name].flatten(2, -2) for name in self._shapes})

    def _unpack(self, latent: Tensor) -> Any:
        sources = self.parts.split(latent)
        named = {name: own.unflatten(-2, tuple(self._shapes[name])) for name, own in sources.items()}
        return next(iter(named.values())) if self._wrap is None else self._wrap(named)


def _named(tokens: Any) -> dict[str, Tensor]:
    """The tokens of each source [·, ·, ..., D] by name."""
    named = {"visual": tokens} if isinstance(tokens, Tensor) else {str(name): tokens[name] for name in tokens.keys()}  # noqa: SIM118
    return {name: value if value.dim() > 3 else value.unsqueeze(2) for name, value in named.items()}


def _like(tokens: Any) -> Callable[[dict[str, Tensor]], Any]:
    """Makes what the model calls its tokens: a dict, or a TensorDict, whose class comes from the model itself."""
    kind = type(tokens)
    if isinstance(tokens, dict):
        return dict
    return lambda named: kind(named, batch_size=list(next(iter(named.values())).shape[:2]))
