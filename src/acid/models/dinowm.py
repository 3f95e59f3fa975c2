"""DINO-WM: frozen patch features of a pretrained encoder, and a predictor of the next frame's tokens.

Because the encoder is frozen, nothing can collapse and nothing is encoded twice: tokens are made once, kept on disk,
and training sees only those. Only the predictor, the action embedding and the projection are stored in a checkpoint.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from acid.errors import ShapeError
from acid.models.contract import Batch, FrozenEncoderModel, Kind
from acid.models.patch_encoders import (
    PatchEncoder,
    PatchEncoderConfig,
    Projection,
    ProjectionConfig,
    digest,
    fit_projection,
    load_encoder,
)
from acid.nn.causal import CausalConfig
from acid.nn.embeddings import sinusoidal
from acid.nn.patches import PatchTransformer
from acid.types import ActionScaler

# Of the waves that describe a normalised action, in standard deviations: from a fine detail to the whole range.
SHORTEST_WAVE, LONGEST_WAVE = 0.5, 8.0
PROJECTION_FRAMES = 2_000  # at most, that the projection is fitted to
_CPU_TOKENS = 3072  # more tokens at once gain nothing on a CPU and take memory


@dataclass(frozen=True)
class ProprioConfig:
    """Proprioception, e.g. positions and speeds of a robot's joints: how it is normalised and embedded.

    It is embedded linearly in `width` numbers, which lie beside those of the picture in every token.
    """

    width: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std) or not all(0 < s < math.inf for s in self.std):
            raise ShapeError(f"proprioception needs a mean and a positive std per number, got {self.mean}, {self.std}")


@dataclass(frozen=True)
class DinoWMConfig:
    """What the encoder sees and what the predictor is.

    `action` says how it enters. "tiled": embedded linearly in `action_width` numbers and put beside the numbers of
    every token, whose width is thus D + action_width; what the predictor says in their place is ignored.
    "modulation": through AdaLN, from an MLP over the action and `waves` sines and cosines of each of its numbers.
    """

    action_size: int  # A: numbers per model action, the block included; 0 in a recipe: as in the data
    encoder: PatchEncoderConfig
    latent_size: int  # D: numbers per token; checked against encoder, projection and proprioception
    projection: ProjectionConfig | None = None
    predictor: CausalConfig = field(default_factory=CausalConfig)
    action: Literal["tiled", "modulation"] = "tiled"
    action_width: int = 10  # of the tiled embedding, or of the hidden layer behind the modulation
    waves: int = 0  # numbers per action dimension
    residual: bool = False  # predict the change instead of the next tokens
    proprio: ProprioConfig | None = None  # beside the picture; then observations are {"pixels": …, "proprio": …}

    @property
    def history(self) -> int:
        return self.predictor.frames


def paper(action_size: int) -> DinoWMConfig:
    """The published sizes: 196 tokens of DINOv2 ViT-S/14, 384 numbers each, and a ViT predictor, depth 6."""
    return DinoWMConfig(
        action_size,
        encoder=PatchEncoderConfig(
            "dinov2-vits14", observation_size=224, image_size=196, source="facebook/dinov2-small"
        ),
        latent_size=384,
        predictor=CausalConfig(frames=1, width=394),
    )


def lite(action_size: int) -> DinoWMConfig:
    """EfficientNet-lite0 at 192 px, 36 tokens of 64 numbers, and a predictor that one CPU core trains in minutes."""
    return DinoWMConfig(
        action_size,
        encoder=PatchEncoderConfig("efficientnet-lite0", observation_size=192, image_size=192, block=7),
        latent_size=64,
        projection=ProjectionConfig(merge=2, size=64),
        predictor=CausalConfig(frames=1, width=128, depth=3, heads=4, head_width=32, mlp_width=384, dropout=0.0),
        action="modulation",
        action_width=256,
        waves=16,
        residual=True,
    )


PRESETS = {"paper": paper, "lite": lite}


class TokenDynamics(nn.Module):
    """What follows from the tokens of a frame and an action."""

    def __init__(self, config: DinoWMConfig, tokens: int) -> None:
        super().__init__()
        self.config = config
        width, tiled = config.predictor.width, config.action == "tiled"
        size = config.latent_size + config.action_width * tiled
        if tiled and size != width:
            raise ShapeError(
                f"tokens of {config.latent_size} numbers with {config.action_width} of the action beside them need a "
                f"predictor of width {size}, got {width}"
            )
        self.embed_action = _action_embedding(config)
        self.predictor = PatchTransformer(config.predictor, tokens=tokens, size=size, conditioned=not tiled)
        self.output = None if tiled else nn.Linear(width, config.latent_size)
        if self.output is not None and config.residual:  # begin with the prediction that nothing changes
            nn.init.zeros_(self.output.weight)
            nn.init.zeros_(self.output.bias)

    def forward(self, latents: Tensor, actions: Tensor) -> Tensor:
        """Latents [M, t, P, D] and actions [M, t, A] to each frame's successor [M, t, P, D] (teacher forced)."""
        embedded = self._embed(actions)
        inputs = self._with_action(latents, embedded)
        return self._finish(self.predictor(inputs, self._conditions(embedded)), latents)

    def unroll(self, start: Tensor, actions: Tensor) -> Tensor:
        """Start [M, P, D] and actions [M, H, A] to imagined latents [M, H, P, D], each fed back in."""
        embedded = self._embed(actions)
        return self.predictor.unroll(
            start,
            actions.shape[1],
            self._conditions(embedded),
            prepare=lambda latent, t: self._with_action(latent, embedded[:, t]),
            finish=self._finish,
        )

    def _embed(self, actions: Tensor) -> Tensor:
        if self.config.waves:
            waves = sinusoidal(actions, self.config.waves, shortest=SHORTEST_WAVE, longest=LONGEST_WAVE)
            actions = torch.cat([actions, waves.flatten(-2)], -1)
        return self.embed_action(actions)

    def _conditions(self, embedded: Tensor) -> Tensor | None:
        return None if self.output is None else embedded

    def _with_action(self, latents: Tensor, embedded: Tensor) -> Tensor:
        """Tokens [..., P, D] with their frame's action [..., width] beside each of them, if that is how it enters."""
        if self.output is not None:
            return latents
        return torch.cat([latents, embedded.unsqueeze(-2).expand(*latents.shape[:-1], -1)], -1)

    def _finish(self, features: Tensor, latents: Tensor) -> Tensor:
        """Features [..., P, width] to the latents [..., P, D] that follow `latents`."""
        predicted = features[..., : self.config.latent_size] if self.output is None else self.output(features)
        return latents + predicted if self.config.residual else predicted


def _action_embedding(config: DinoWMConfig) -> nn.Module:
    size = config.action_size * (1 + config.waves)
    if config.action == "tiled":
        return nn.Linear(size, config.action_width)
    width = config.predictor.width
    return nn.Sequential(nn.Linear(size, config.action_width), nn.SiLU(), nn.Linear(config.action_width, width))


class Proprio(nn.Module):
    """Proprioception [B, p] in its own units to its embedding [B, width]."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: ProprioConfig) -> None:
        super().__init__()
        self.embed = nn.Linear(len(config.mean), config.width)
        self.register_buffer("mean", torch.tensor(config.mean), persistent=False)
        self.register_buffer("std", torch.tensor(config.std), persistent=False)

    def forward(self, proprio: Tensor) -> Tensor:
        if proprio.dim() != 2 or proprio.shape[1] != len(self.mean):
            raise ShapeError(f"proprioception must be [B, {len(self.mean)}], got {list(proprio.shape)}")
        return self.embed((proprio - self.mean) / self.std)


class DinoWorldModel(FrozenEncoderModel):
    """`encode` and `rollout` for planning, `dynamics` for training on tokens. P tokens per frame.

    The encoder is loaded by the name in the configuration unless one is passed; its weights are not the model's.
    """

    def __init__(self, config: DinoWMConfig, scaler: ActionScaler, encoder: PatchEncoder | None = None) -> None:
        super().__init__(config, scaler)
        self.encoder = encoder or load_encoder(config.encoder)
        self.encoder.check(config.encoder)
        self.config = replace(config, encoder=replace(self.encoder.config, digest=self.encoder.digest))
        grid, channels = self.encoder.grid, self.encoder.channels
        self.projection = None if config.projection is None else Projection(config.projection, grid, channels)
        self.proprio = None if config.proprio is None else Proprio(config.proprio)
        found = channels if self.projection is None else self.projection.basis.shape[1]
        found += 0 if config.proprio is None else config.proprio.width
        if found != config.latent_size:
            raise ShapeError(
                f"the encoder makes tokens of {found} numbers, the configuration says latent_size {config.latent_size}"
            )
        self.tokens = grid[0] * grid[1] if self.projection is None else len(self.projection.mean)
        self.dynamics = TokenDynamics(config, self.tokens)

    @property
    def observation_size(self) -> int:
        return self.config.encoder.observation_size

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.proprio is None else ("proprio",)

    @property
    def encoder_fingerprint(self) -> str:
        parts = [repr(replace(self.config.encoder, source=None))]  # the same weights may lie elsewhere
        parts += [digest(part.state_dict()) for part in (self.projection, self.proprio) if part is not None]
        parts += [] if self.config.proprio is None else [repr(self.config.proprio)]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]

    def fit_encoder(self, frames: Callable[[int], Tensor]) -> None:
        """Fit the projection, if there is one, to some frames uint8 [M, S, S, 3]."""
        if self.projection is not None:
            features = self.encoder(frames(PROJECTION_FRAMES)).cpu()
            self.projection.load_state_dict(fit_projection(features, self.projection.config).state_dict())

    @torch.no_grad()
    def encode(self, observation: Tensor | Mapping[str, Tensor]) -> Tensor:
        """uint8 pixels [B, S, S, 3] to latents [B, P, D]; with proprioception, {"pixels": …, "proprio": [B, p]}."""
        pixels, proprio = _sources(observation, None if self.proprio is None else len(self.proprio.mean))
        features = self.encoder(pixels)
        tokens = features.flatten(1, 2) if self.projection is None else self.projection(features)
        if self.proprio is None or proprio is None:
            return tokens
        embedded = self.proprio(proprio.to(tokens.dtype))
        return torch.cat([tokens, embedded.unsqueeze(1).expand(-1, self.tokens, -1)], -1)

    def fake_input(self, batch: int = 2, *, candidates: int = 3, horizon: int = 5) -> tuple[Any, Any, Tensor]:
        seen, goal, actions = super().fake_input(batch, candidates=candidates, horizon=horizon)
        if self.proprio is None:
            return seen, goal, actions
        proprio = self.proprio.mean.expand(batch, -1)
        return {"pixels": seen, "proprio": proprio}, {"pixels": goal, "proprio": proprio}, actions

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        """Latents [B, P, D] and actions [B, N, H, A] to imagined latents [B, N, H, P, D]."""
        if actions.dim() != 4 or actions.shape[-1] != self.config.action_size:
            raise ShapeError(f"the model takes actions of size {self.config.action_size}, got {list(actions.shape)}")
        if latent.shape != (len(actions), self.tokens, self.config.latent_size):
            raise ShapeError(
                f"latents must be [{len(actions)}, {self.tokens}, {self.config.latent_size}], got {list(latent.shape)}"
            )
        candidates = actions.shape[1]
        start = latent.unsqueeze(1).expand(-1, candidates, -1, -1).flatten(0, 1)
        rows = max(1, _CPU_TOKENS // self.tokens) if latent.device.type == "cpu" else max(1, len(start))
        pairs = zip(start.split(rows), actions.flatten(0, 1).split(rows), strict=True)
        imagined = torch.cat([self.dynamics.unroll(first, chosen) for first, chosen in pairs])
        return imagined.unflatten(0, (len(actions), candidates))


def _sources(observation: Tensor | Mapping[str, Tensor], size: int | None) -> tuple[Tensor, Tensor | None]:
    """Pixels and, if the model takes `size` numbers of proprioception, those."""
    if size is None:
        if isinstance(observation, Mapping):
            raise ShapeError(
                f"the model looks at pixels only, got {sorted(observation)}; give the pixels by themselves"
            )
        return observation, None
    if not isinstance(observation, Mapping) or observation.keys() != {"pixels", "proprio"}:
        got = sorted(observation) if isinstance(observation, Mapping) else "pixels by themselves"
        raise ShapeError(
            f"the model looks at pixels and {size} numbers of proprioception, got {got}; "
            'give observation and goal as {"pixels": [B, S, S, 3], "proprio": [B, p]}'
        )
    return observation["pixels"], observation["proprio"]


@dataclass(frozen=True)
class DinoWMLossConfig:
    """Nothing to set: with a frozen encoder the prediction error is all there is."""


class DinoWMLoss(nn.Module):
    """Mean squared error of the next frame's tokens, teacher forced."""

    def __init__(self, config: DinoWMLossConfig, model: DinoWorldModel) -> None:
        super().__init__()
        self.config = config

    def forward(self, model: DinoWorldModel, batch: Batch) -> dict[str, Tensor]:
        """Of windows of latents; "of_still" is the ratio of the loss to the error of predicting no change."""
        before, after = batch.frames[:, :-1].float(), batch.frames[:, 1:].float()
        error = (model.dynamics(before, batch.actions) - after).square().mean()
        still = (before - after).square().mean()
        return {"loss": error, "of_still": error.detach() / still}


KIND = Kind(PRESETS, DinoWMConfig, DinoWorldModel, DinoWMLossConfig, DinoWMLoss, stream="latents", is_map=True)
