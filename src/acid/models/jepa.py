"""Joint-embedding world models: an image encoder and a causal predictor of the next embedding.

Le-WM and PLDM are this network trained with different losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recomputed

from acid.errors import ShapeError
from acid.models.contract import LearnedWorldModel
from acid.nn.batch_norm import BatchNorm1d, BatchNorm2d
from acid.nn.causal import CausalConfig, CausalTransformer
from acid.nn.encoders import ConvConfig, EncoderConfig, ViTConfig, build_encoder
from acid.types import ActionScaler

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class JepaConfig:
    action_size: int  # A: numbers per model action, the block included; 0 in a recipe: as in the data
    latent_size: int = 192  # D
    projector_width: int = 2048
    action_width: int = 10  # of the first, linear, action embedding
    encoder: EncoderConfig = field(default_factory=ViTConfig)
    predictor: CausalConfig = field(default_factory=CausalConfig)
    ensemble: int = 1  # predictors that learn side by side on the same embeddings
    standardise: bool = False  # every channel of the embedding to mean 0 and spread 1: none can be given up
    shape_size: int = 0  # channels of the embedding, the last ones, that see only what the encoder's detectors found

    @property
    def history(self) -> int:
        return self.predictor.frames


def paper(action_size: int) -> JepaConfig:
    """The published sizes, 18.0 M parameters."""
    return JepaConfig(action_size)


def lite(action_size: int) -> JepaConfig:
    """64-px images, 1.3 M parameters: trains on one CPU core in well under an hour.

    The history covers the whole planning horizon, so that a rollout never has to recompute its window.
    """
    return JepaConfig(
        action_size,
        latent_size=32,
        projector_width=256,
        action_width=32,
        encoder=ConvConfig(normalise=True, keypoints=32),
        predictor=CausalConfig(frames=5, width=96, depth=3, heads=3, head_width=32, mlp_width=288, dropout=0.0),
        standardise=True,
    )


def lite_with_shapes(action_size: int) -> JepaConfig:
    """The same with a second trunk for 12 of the 32 channels, which tell what is seen, and not where."""
    usual = lite(action_size)
    encoder = ConvConfig(normalise=True, keypoints=32, detectors=(16, 32, 48, 64))
    return replace(usual, encoder=encoder, shape_size=12)


PRESETS = {"paper": paper, "lite": lite}


class Projector(nn.Sequential):
    """MLP with batch normalisation, on [M, width]."""

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__(nn.Linear(width, hidden), BatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, out))


class PartedProjector(nn.Module):
    """Features of places and of shapes, side by side, each to its own channels of the embedding."""

    def __init__(self, config: JepaConfig) -> None:
        super().__init__()
        encoder = config.encoder
        found = encoder.detectors if isinstance(encoder, ConvConfig) else ()
        if not (found and 0 < config.shape_size < config.latent_size):
            raise ShapeError(
                f"shape_size must be 1 to {config.latent_size - 1}, fewer than the latent has, and needs an "
                f"encoder with detectors; got {config.shape_size} and detectors {found}"
            )
        self.sizes = [encoder.width, found[-1]]
        self.places = Projector(encoder.width, config.projector_width, config.latent_size - config.shape_size)
        self.shapes = Projector(found[-1], config.projector_width, config.shape_size)

    def forward(self, features: Tensor) -> Tensor:
        places, shapes = features.split(self.sizes, -1)
        return torch.cat([self.places(places), self.shapes(shapes)], -1)


class ActionEmbedding(nn.Sequential):
    """Actions [..., A] to conditions [..., width]."""

    def __init__(self, size: int, first: int, width: int) -> None:
        super().__init__(nn.Linear(size, first), nn.Linear(first, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))


class Dynamics(nn.Module):
    """What follows from an embedding and an action: embeds the action, predicts, projects back."""

    def __init__(self, config: JepaConfig) -> None:
        super().__init__()
        width = config.predictor.width
        self.action_embedding = ActionEmbedding(config.action_size, config.action_width, width)
        self.predictor = CausalTransformer(config.predictor, config.latent_size)
        self.projector = Projector(width, config.projector_width, config.latent_size)

    def forward(self, embeddings: Tensor, actions: Tensor) -> Tensor:
        """Embeddings [M, t, D] and actions [M, t, A] to each one's successor [M, t, D] (teacher forced)."""
        features = self.predictor(embeddings, self.action_embedding(actions))
        return self.projector(features.flatten(0, 1)).view_as(embeddings)

    def unroll(self, start: Tensor, actions: Tensor) -> Tensor:
        """Start [M, D] and actions [M, H, A] to imagined embeddings [M, H, D], each fed back in."""
        return self.predictor.unroll(start, self.action_embedding(actions), self.projector)


def batch_samples(embeddings: Tensor, *, pooled: bool) -> Tensor:
    """A batch [B, T, D] as samples for statistics: one per time [T, B, D], or one of all frames [1, B·T, D]."""
    return embeddings.flatten(0, 1)[None] if pooled else embeddings.transpose(0, 1)


class JepaWorldModel(LearnedWorldModel):
    """`encode` and `rollout` for planning, `embed` and `dynamics` for training. One token per frame (P = 1).

    With an ensemble every predictor imagines by itself; `rollout` is their mean, `disagreement` their variance.
    """

    pixel_mean: Tensor
    pixel_std: Tensor
    dynamics: Sequence[Dynamics]

    def __init__(self, config: JepaConfig, scaler: ActionScaler) -> None:
        super().__init__(config, scaler)
        if config.ensemble < 1:
            raise ShapeError(f"an ensemble needs at least 1 predictor, got {config.ensemble}")
        self._frames_at_once: int | None = None
        self.encoder = build_encoder(config.encoder)
        if config.shape_size or getattr(config.encoder, "detectors", ()):
            self.projector: nn.Module = PartedProjector(config)
        else:
            self.projector = Projector(config.encoder.width, config.projector_width, config.latent_size)
        self.standard = BatchNorm1d(config.latent_size, affine=False) if config.standardise else nn.Identity()
        self.dynamics = cast("Sequence[Dynamics]", nn.ModuleList(Dynamics(config) for _ in range(config.ensemble)))
        self.register_buffer("pixel_mean", torch.tensor(IMAGENET_MEAN).view(3, 1, 1) * 255, persistent=False)
        self.register_buffer("pixel_std", torch.tensor(IMAGENET_STD).view(3, 1, 1) * 255, persistent=False)

    @property
    def observation_size(self) -> int:
        return self.config.encoder.image_size

    def embed(self, pixels: Tensor) -> Tensor:
        """uint8 pixels [..., S, S, 3] to embeddings [..., D]."""
        side = self.observation_size
        if pixels.dtype != torch.uint8 or tuple(pixels.shape[-3:]) != (side, side, 3):
            raise ShapeError(
                f"the encoder takes uint8 images [..., {side}, {side}, 3], got {pixels.dtype} {list(pixels.shape)}"
            )
        images = pixels.reshape(-1, side, side, 3)
        if self._frames_at_once is None:
            features = self._see(images)
        else:
            parts = images.split(self._frames_at_once)
            features = torch.cat([recomputed(self._see, part, use_reentrant=False) for part in parts])
        return self.standard(self.projector(features)).view(*pixels.shape[:-3], -1)

    def _see(self, images: Tensor) -> Tensor:
        """uint8 pixels [M, S, S, 3] to features [M, width]."""
        return self.encoder((images.permute(0, 3, 1, 2) - self.pixel_mean) / self.pixel_std)

    def limit_frames(self, count: int) -> None:
        if any(isinstance(layer, BatchNorm2d) for layer in self.encoder.modules()):
            raise ShapeError("this encoder normalises by the frames of a whole batch: leave out micro_batch")
        self._frames_at_once = count

    def prediction_error(self, embeddings: Tensor, actions: Tensor) -> Tensor:
        """Mean squared error of every next embedding, over all predictors: [M, t+1, D], [M, t, A] to a number."""
        before, after = embeddings[:, :-1], embeddings[:, 1:]
        return torch.stack([(member(before, actions) - after).square().mean() for member in self.dynamics]).mean()

    def encode(self, observation: Tensor) -> Tensor:
        """uint8 pixels [B, S, S, 3] to latents [B, 1, D]."""
        return self.embed(observation).unsqueeze(-2)

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        """Latents [B, 1, D] and actions [B, N, H, A] to imagined latents [B, N, H, 1, D]."""
        imagined = self._imagine(latent, actions)
        return imagined[0] if len(imagined) == 1 else torch.stack(imagined).mean(0)

    def disagreement(self, latent: Tensor, actions: Tensor) -> Tensor:
        """How far the ensemble's imaginations are apart: their variance, mean over channels, [B, N, H]."""
        return torch.stack(self._imagine(latent, actions)).var(0, correction=0).mean((-1, -2))

    def _imagine(self, latent: Tensor, actions: Tensor) -> list[Tensor]:
        """Each predictor's imagined latents [B, N, H, 1, D]."""
        problems, candidates, _, size = actions.shape if actions.dim() == 4 else (0, 0, 0, 0)
        if size != self.config.action_size:
            raise ShapeError(f"the model takes actions of size {self.config.action_size}, got {list(actions.shape)}")
        if latent.dim() != 3 or latent.shape[1:] != (1, self.config.latent_size) or len(latent) != problems:
            raise ShapeError(
                f"the model takes latents [{problems}, 1, {self.config.latent_size}] for actions "
                f"{list(actions.shape)}, got {list(latent.shape)}"
            )
        start = latent[:, 0].repeat_interleave(candidates, 0)
        shape = (problems, candidates, -1, 1, latent.shape[-1])
        return [member.unroll(start, actions.flatten(0, 1)).view(shape) for member in self.dynamics]
