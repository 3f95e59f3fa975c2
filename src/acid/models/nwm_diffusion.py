"""NWM as its authors publish it: the next frame's latent, denoised step by step, given four frames and an action.

Frames are the latents of Stable Diffusion's VAE, cut into squares of 2 × 2. The network is the CDiT of `cdit` in its
published form: action, elapsed time and how much noise is left modulate every layer and what is read of the context. So
the context is read anew in every step, and a frame costs 250 passes: this is a model for a GPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.errors import ShapeError
from acid.models.cdit import PUBLISHED_TIME, ActionEmbedding, CDiTBlock, CDiTConfig
from acid.models.contract import Batch, Kind
from acid.models.vae import ImageVAE, VAEConfig, load_vae
from acid.models.video import VideoModel
from acid.nn.diffusion import STEPS, Diffusion
from acid.types import ActionScaler


@dataclass(frozen=True)
class NWMDiffusionConfig:
    """CDiT-XL by default.

    redraw: an imagined frame is drawn and encoded again before the next one follows from it, as published.
    """

    action_size: int  # A: numbers per action; 0 in a recipe: as in the data
    encoder: VAEConfig = field(default_factory=VAEConfig)
    predictor: CDiTConfig = field(default_factory=lambda: CDiTConfig(1152, 28, 16, 4608))
    context: int = 4  # frames
    patch: int = 2  # side of the squares of a latent map that become one token
    waves: int = 256  # sines and cosines that describe each number of an action, and each time
    steps: int = 250  # in which a rollout takes the noise away
    redraw: bool = True

    def __post_init__(self) -> None:
        if min(self.context, self.patch) < 1 or not 2 <= self.steps <= STEPS:
            raise ShapeError(f"a diffusion model needs context, squares and 2 to {STEPS} steps, got {self}")

    @property
    def history(self) -> int:
        return self.context


def paper(action_size: int) -> NWMDiffusionConfig:
    """CDiT-XL, the published size."""
    return NWMDiffusionConfig(action_size)


def lite(action_size: int) -> NWMDiffusionConfig:
    """64-px frames and a predictor of 2 M parameters; the VAE is the same."""
    return NWMDiffusionConfig(
        action_size,
        VAEConfig(image_size=64),
        CDiTConfig(width=144, depth=4, heads=4, mlp_width=432),
        waves=32,
        steps=10,
        redraw=False,
    )


PRESETS = {"paper": paper, "lite": lite}


class LatentDynamics(nn.Module):
    """The noise in the next frame's latent [M, P, D], and where its variance lies: [M, P, 2·D]."""

    blocks: Sequence[CDiTBlock]

    def __init__(self, config: NWMDiffusionConfig, tokens: int, size: int) -> None:
        super().__init__()
        width, waves = config.predictor.width, config.waves
        self.embed = nn.Linear(size, width)
        self.embed_action = ActionEmbedding(config.action_size, waves, width, published=True)
        self.embed_time = ActionEmbedding(1, waves, width, published=True)
        self.embed_noise = ActionEmbedding(1, waves, width, published=True)
        self.positions = nn.Parameter(0.02 * torch.randn(config.context + 1, tokens, width))
        blocks = nn.ModuleList(CDiTBlock(config.predictor, 0) for _ in range(config.predictor.depth))
        self.blocks = cast("Sequence[CDiTBlock]", blocks)
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Linear(width, 2 * width)  # of the output
        self.head = nn.Linear(width, 2 * size)
        self._begin()

    def _begin(self) -> None:
        """Starting values as published: at first nothing is modulated, and the output is zero."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        for embedding in (self.embed_action, self.embed_time, self.embed_noise):
            for weight in embedding.parameters():
                if weight.dim() > 1:
                    nn.init.normal_(weight, std=0.02)
        for layer in (self.modulation, self.head, *(block.modulation for block in self.blocks)):
            nn.init.zeros_(layer.weight)

    def condition(self, actions: Tensor, elapsed: int | Tensor = 1) -> Tensor:
        """Actions [M, A] and frames elapsed (a number or [M]) to vectors [M, width]."""
        time = torch.as_tensor(elapsed, device=actions.device).float().unsqueeze(-1) / PUBLISHED_TIME
        return self.embed_action(actions) + self.embed_time(time)

    def look(self, frames: Tensor) -> Tensor:
        """Latents of a whole context [M, T, P, D] to vectors [M, T·P, width]."""
        return (self.embed(frames) + self.positions[:-1]).flatten(1, 2)

    def forward(self, noised: Tensor, level: int | Tensor, condition: Tensor, context: Tensor) -> Tensor:
        """level: how noisy the latents [M, P, D] are, 0 to 999, a number or [M]."""
        noise = torch.as_tensor(level, device=noised.device).float().unsqueeze(-1)
        activated = F.silu(condition + self.embed_noise(noise)).unsqueeze(1)
        x = self.embed(noised.to(self.positions.dtype)) + self.positions[-1]
        for block in self.blocks:
            modulation = block.modulation(activated)
            x = block(x, modulation, block.read(context, modulation))
        shift, scale = self.modulation(activated).chunk(2, -1)
        return self.head(torch.addcmul(shift, self.norm(x), 1 + scale)).float()


class DiffusionWorldModel(VideoModel):
    """The latent of a frame [P, D] is its map [C, h, w] in the VAE, scaled: P squares of D = C·patch·patch numbers.

    `diffusion` may be replaced at any time, by one of fewer steps.
    """

    cpu_candidates: ClassVar[int] = 8

    def __init__(self, config: NWMDiffusionConfig, scaler: ActionScaler, encoder: ImageVAE | None = None) -> None:
        super().__init__(config, scaler)
        self.encoder = encoder or load_vae(config.encoder)
        self.encoder.check(config.encoder)
        self.config = replace(config, encoder=replace(self.encoder.config, digest=self.encoder.digest))
        if self.encoder.grid % config.patch:
            raise ShapeError(f"a latent map of side {self.encoder.grid} cannot be cut into squares of {config.patch}")
        self.diffusion = Diffusion(config.steps)
        self.dynamics = LatentDynamics(self.config, *self.latent_shape)

    @property
    def observation_size(self) -> int:
        return self.config.encoder.image_size

    @property
    def latent_shape(self) -> tuple[int, int]:
        patch = self.config.patch
        return (self.encoder.grid // patch) ** 2, self.encoder.channels * patch**2

    @property
    def encoder_fingerprint(self) -> str:
        told = f"{replace(self.config.encoder, source=None)} {self.config.patch}"
        return hashlib.sha256(told.encode()).hexdigest()[:12]

    def encode(self, observation: Tensor) -> Tensor:
        """uint8 pixels [B, S, S, 3] to latents [B, P, D], or [B, T, S, S, 3] to [B, T, P, D]."""
        maps = self.encoder.encode(observation.reshape(-1, *observation.shape[-3:]))
        return self._cut(maps).unflatten(0, observation.shape[:-3])

    def decode(self, latents: Tensor) -> Tensor:
        return self._draw(latents).permute(0, 2, 3, 1).unflatten(0, latents.shape[:-2])

    def imagine(self, context: Tensor, actions: Tensor, seeds: Sequence[int]) -> Tensor:
        """Every problem has its own noise, which its candidates share: they then differ by what their actions do."""
        problems, candidates, horizon, _ = actions.shape
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        frames = context.to(actions.dtype).unsqueeze(1).expand(-1, candidates, -1, -1, -1)
        imagined = []

        def draw() -> Tensor:
            noise = torch.stack([torch.randn(self.latent_shape, generator=generator) for generator in generators])
            return noise.to(actions.device).repeat_interleave(candidates, 0)

        for step in range(horizon):
            told = self.dynamics.condition(actions[:, :, step].flatten(0, 1))
            seen = self.dynamics.look(frames.flatten(0, 1))
            sampled = self.diffusion.sample(lambda x, level: self.dynamics(x, level, told, seen), draw)  # noqa: B023
            imagined.append(sampled.unflatten(0, (problems, candidates)))
            if step + 1 < horizon:
                newest = self._cut(self.encoder.encode_images(self._draw(sampled))) if self.config.redraw else sampled
                newest = newest.to(frames.dtype).unflatten(0, (problems, candidates))
                frames = torch.cat([frames[:, :, 1:], newest.unsqueeze(2)], 2)
        return torch.stack(imagined, 2)

    def _cut(self, maps: Tensor) -> Tensor:
        """[M, C, h, w] to [M, P, D]."""
        return F.pixel_unshuffle(maps, self.config.patch).flatten(2).transpose(1, 2)

    def _draw(self, latents: Tensor) -> Tensor:
        """Latents [..., P, D] to images [M, 3, S, S] in 0..1."""
        side = self.encoder.grid // self.config.patch
        maps = latents.reshape(-1, *self.latent_shape).transpose(1, 2).unflatten(2, (side, side))
        return self.encoder.decode(F.pixel_shuffle(maps, self.config.patch))


@dataclass(frozen=True)
class NWMDiffusionLossConfig:
    bound: float = 1.0  # weight of the variational bound, which teaches the variance


class NWMDiffusionLoss(nn.Module):
    """The squared error of the noise in a frame, and the variational bound of its variance, at a random level."""

    def __init__(self, config: NWMDiffusionLossConfig, model: DiffusionWorldModel) -> None:
        super().__init__()
        self.config = config
        self.diffusion = Diffusion()

    def forward(self, model: DiffusionWorldModel, batch: Batch) -> dict[str, Tensor]:
        """Of windows of latents, the last frame of which is to be predicted, or of contexts with goals.

        "loss" is what to minimise; "error" is that of the noise, "bound" is in bits a number.
        """
        aims, dynamics = batch.aims(), model.dynamics
        clean = aims.target
        level = torch.randint(STEPS, (len(clean),)).to(clean.device)
        noise = torch.randn(clean.shape).to(clean.device)
        output = dynamics(
            self.diffusion.noised(clean, level, noise),
            level,
            dynamics.condition(aims.actions, aims.elapsed),
            dynamics.look(aims.context),
        )
        error, bound = (losses.mean() for losses in self.diffusion.losses(output, clean, noise, level))
        return {"loss": error + self.config.bound * bound, "error": error.detach(), "bound": bound.detach()}


KIND = Kind(
    PRESETS,
    NWMDiffusionConfig,
    DiffusionWorldModel,
    NWMDiffusionLossConfig,
    NWMDiffusionLoss,
    stream="latents",
    actions="displacements",
    is_map=True,
    parts=("model", "verifier"),
)
