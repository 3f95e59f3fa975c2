"""World models of stable-worldmodel in our planner: its LeWM, PLDM and PreJEPA (its name for DINO-WM).

Only what both of its APIs have in common is called: `encode`, `predict` and the encoder of actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from acid.errors import PlanningError, ShapeError, some
from acid.planning import Parts
from acid.types import ActionScaler

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PIXELS, ACTION = "pixels", "action"


def imagenet(pixels: Tensor) -> Tensor:
    """uint8 [..., S, S, 3] to what its published models take: [..., 3, S, S] with ImageNet's mean and deviation."""
    if pixels.dtype != torch.uint8 or pixels.shape[-1] != 3:
        raise ShapeError(f"pixels must be uint8 [..., S, S, 3], got {pixels.dtype} {list(pixels.shape)}")
    mean, std = (torch.tensor(values, device=pixels.device) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return ((pixels / 255 - mean) / std).movedim(-1, -3)


class PeerModel(nn.Module):
    """A trained model of stable-worldmodel as a world model of ours.

    network: its LeWM, PLDM or PreJEPA.
    scaler: the statistics that its training normalised actions with; without them, plan in its units (`action_size`).
    preprocess: makes its images [..., 3, S, S] of observed pixels; None: they come ready, as from a transform of its
        policy.

    An observation is pixels [B, ...] of one frame or [B, T, ...] of T, or, for a PreJEPA with further encoders, these
    and what they take by name: {"pixels": ..., "proprio": [B, d] or [B, T, d]}. Its latents are then named `parts`.
    """

    def __init__(
        self,
        network: nn.Module,
        scaler: ActionScaler | None = None,
        *,
        preprocess: Callable[[Tensor], Tensor] | None = imagenet,
    ) -> None:
        super().__init__()
        missing = [name for name in ("encode", "predict", "predictor") if not hasattr(network, name)]
        if missing:
            raise PlanningError(
                f"a {type(network).__name__} has no {some(missing)}; LeWM, PLDM and PreJEPA of stable-worldmodel do"
            )
        self.network: Any = network.eval()
        self.scaler = scaler
        self.preprocess = preprocess
        self.encoders: Mapping[str, Any] = dict(getattr(network, "extra_encoders", None) or {})
        self.sources = (PIXELS, *(name for name in self.encoders if name != ACTION))
        self.window = int(getattr(network, "history_size", 0) or getattr(network.predictor, "num_frames", 3))
        self.parts = self._find_parts()

    def encode(self, observation: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Latents [B, P, D] of one frame, or [B, T, P, D] of T."""
        seen = {PIXELS: observation} if isinstance(observation, Tensor) else dict(observation)
        if missing := [name for name in self.sources if name not in seen]:
            raise ShapeError(f"the model also needs the observation {some(missing)}; pass all of them by name")
        images = seen[PIXELS] if self.preprocess is None else self.preprocess(seen[PIXELS])
        single = images.dim() == 4
        info = {name: seen[name][:, None] if single else seen[name] for name in self.sources}
        info[PIXELS] = images[:, None] if single else images
        latent = self._encode(info)
        return latent[:, 0] if single else latent

    def rollout(self, latent: Tensor, actions: Tensor, past_actions: Tensor | None = None) -> Tensor:
        """Latents [B, P, D] or [B, T, P, D] and actions [B, N, H, A] to imagined latents [B, N, H, P, D]."""
        context = latent if latent.dim() == 4 else latent.unsqueeze(1)
        problems, candidates, horizon, _ = actions.shape
        if past_actions is None and context.shape[1] > 1:
            raise PlanningError(
                f"{context.shape[1]} context frames need the {context.shape[1] - 1} actions between them: pass "
                "past_actions"
            )
        blocks = actions.flatten(0, 1)
        if past_actions is not None:
            blocks = torch.cat([past_actions.repeat_interleave(candidates, 0), blocks], dim=1)
        embedded = (self.network.action_encoder if self.parts is None else self.encoders[ACTION])(blocks)
        frames = list(context.repeat_interleave(candidates, 0).unbind(1))
        for now in range(len(frames), len(frames) + horizon):
            first = max(0, now - self.window)
            frames.append(self._next(torch.stack(frames[first:], 1), embedded[:, first:now]))
        imagined = torch.stack(frames[-horizon:], 1).unflatten(0, (problems, candidates))
        return imagined if self.parts is None else self._without_copies(imagined, self.parts)

    def _encode(self, info: dict[str, Tensor]) -> Tensor:
        """[B, T, P, D]."""
        if self.parts is None:
            return self.network.encode(info)["emb"].unsqueeze(-2)
        found = self.network.encode(info, emb_keys=self.sources[1:])
        return self.parts.join({name: found[f"{name}_emb"] for name in self.sources})

    def _next(self, frames: Tensor, actions: Tensor) -> Tensor:
        """Frames [M, W, P, D] and embedded actions [M, W, E] to the next frame [M, P, D]."""
        if self.parts is None:
            return self.network.predict(frames[..., 0, :], actions)[:, -1].unsqueeze(-2)
        size = actions.shape[-1]
        layout = Parts({name: self.parts.sizes.get(name, size) for name in (PIXELS, *self.encoders)})
        token = layout.join(self.parts.split(frames) | {ACTION: actions})
        predicted = layout.split(self.network.predict(token)[:, -1])
        return self.parts.join({name: predicted[name] for name in self.sources})

    def _without_copies(self, latent: Tensor, parts: Parts) -> Tensor:
        """Its predictor has a copy of what has no tokens in each token; it counts the first, and so do we."""
        sources = parts.split(latent)
        return parts.join({name: own if name == PIXELS else own[..., 0, :] for name, own in sources.items()})

    def _find_parts(self) -> Parts | None:
        """A PreJEPA's token holds pixels and then each encoder's output, that of the action among them."""
        if not self.encoders:
            return None
        sizes = {name: int(encoder.emb_dim) for name, encoder in self.encoders.items()}
        pixels = int(self.network.predictor.pos_embedding.shape[-1]) - sum(sizes.values())
        return Parts({name: pixels if name == PIXELS else sizes[name] for name in self.sources})
