"""Frozen autoencoders with continuous latents by name: Stable Diffusion's VAE, pixels to a small map and back.

As with encoders and codecs, their weights are other people's, never part of our checkpoints, and never downloaded here.
The network is built from the folder's own description, in the layout of diffusers, which is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid import checkpoint
from acid.errors import CheckpointError, ShapeError, look_up
from acid.files import load_safetensors, read_json_object
from acid.models.patch_encoders import EncoderError, digest
from acid.nn.pictures import check_pixels

CONFIG, WEIGHTS = "config.json", "diffusion_pytorch_model.safetensors"
SCALE = 0.18215  # of Stable Diffusion's latents, whose deviation it makes 1; where a folder does not tell
EARLIER = {
    "query": "to_q",
    "key": "to_k",
    "value": "to_v",
    "proj_attn": "to_out.0",
}  # names of attention in older files
_CPU_IMAGES = 8  # at once


@dataclass(frozen=True)
class VAEConfig:
    """Which frozen autoencoder makes the latents."""

    name: str = "sd-vae"
    image_size: int = 224
    source: str | None = None  # a folder in the layout of diffusers
    digest: str | None = None  # of the weights; filled in by the model that uses them, and checked when it is loaded


class ImageVAE:
    """uint8 pixels [M, S, S, 3] to latents [M, C, h, w], and these to images [M, 3, S, S] in 0..1.

    Deliberately not an `nn.Module`: a world model may hold one without its weights joining the model's. Pictures are
    encoded as the mean of what the autoencoder believes: it is certain to about a thousandth.
    """

    def __init__(self, config: VAEConfig, network: VAENetwork) -> None:
        self.config = config
        self.network = network.eval().requires_grad_(False)
        self.channels = network.shape.latent_channels
        self.stride = network.shape.stride
        told = torch.tensor([network.shape.scale, network.shape.groups])  # which the weights do not tell
        self.digest = digest(network.state_dict() | {"shape": told})
        if config.image_size % self.stride:
            raise ShapeError(f"the autoencoder takes images whose side is a multiple of {self.stride}, got {config}")
        self.check(config)

    @property
    def grid(self) -> int:
        """h = w."""
        return self.config.image_size // self.stride

    def check(self, config: VAEConfig) -> None:
        """Refuse to serve a configuration that was trained with other weights."""
        if config.digest not in (None, self.digest):
            raise CheckpointError(
                f"the model was trained with weights {config.digest} of {config.name!r}, but those found are "
                f"{self.digest}; name the folder that it was trained with"
            )

    def encode(self, pixels: Tensor) -> Tensor:
        check_pixels("the autoencoder", pixels, self.config.image_size)
        return self.encode_images(pixels.permute(0, 3, 1, 2).float() / 255)

    @torch.no_grad()
    def encode_images(self, images: Tensor) -> Tensor:
        """Images [M, 3, S, S] in 0..1 to latents."""
        return self._map(lambda network, part: network.encode(part * 2 - 1), images)

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        return self._map(lambda network, part: (network.decode(part) / 2 + 0.5).clamp(0, 1), latents)

    def _map(self, function: Callable[[VAENetwork, Tensor], Tensor], values: Tensor) -> Tensor:
        network = self.network.to(values.device)
        at_once = _CPU_IMAGES if values.device.type == "cpu" else max(1, len(values))
        return torch.cat([function(network, part.float()) for part in values.split(at_once)])


def load_vae(config: VAEConfig) -> ImageVAE:
    """The frozen autoencoder that a configuration names, from what is on disk."""
    return look_up(VAES, config.name, "image autoencoder")(config)


@dataclass(frozen=True)
class VAEShape:
    """Channels from the finest level on, each next of which has half the side."""

    channels: tuple[int, ...] = (128, 256, 512, 512)
    blocks: int = 2  # per level, and one more on the way back
    latent_channels: int = 4
    groups: int = 32  # of channels that are normalised together
    scale: float = SCALE

    def __post_init__(self) -> None:
        if not self.channels or min(self.blocks, self.latent_channels, self.groups, *self.channels) < 1:
            raise ShapeError(f"an autoencoder needs levels, blocks and channels, got {self}")
        if any(width % self.groups for width in self.channels) or not 0 < self.scale < 100:
            raise ShapeError(f"channels must be multiples of the groups, and the scale a positive number, got {self}")

    @property
    def stride(self) -> int:
        return 2 ** (len(self.channels) - 1)


class VAENetwork(nn.Module):
    """Its parts are called as in the published files. Images are in −1..1; latents are scaled."""

    def __init__(self, shape: VAEShape) -> None:
        super().__init__()
        self.shape = shape
        size = shape.latent_channels
        self.encoder = _Encoder(shape)
        self.decoder = _Decoder(shape)
        self.quant_conv = nn.Conv2d(2 * size, 2 * size, 1)
        self.post_quant_conv = nn.Conv2d(size, size, 1)

    def encode(self, images: Tensor) -> Tensor:
        mean, _ = self.quant_conv(self.encoder(images)).chunk(2, 1)
        return mean * self.shape.scale

    def decode(self, latents: Tensor) -> Tensor:
        return self.decoder(self.post_quant_conv(latents / self.shape.scale))


class _Residual(nn.Module):
    def __init__(self, before: int, after: int, groups: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = _norm(before, groups), _norm(after, groups)
        self.conv1, self.conv2 = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.conv_shortcut = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = self.conv1(F.silu(self.norm1(x)))
        return self.conv_shortcut(x) + self.conv2(F.silu(self.norm2(found)))


class _Attention(nn.Module):
    """Every place attends to all places, with one head."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.group_norm = _norm(width, groups)
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x: Tensor) -> Tensor:
        places = self.group_norm(x).flatten(2).transpose(1, 2)
        seen = F.scaled_dot_product_attention(self.to_q(places), self.to_k(places), self.to_v(places))
        return x + self.to_out[0](seen).transpose(1, 2).unflatten(2, x.shape[2:])


class _Middle(nn.Module):
    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.resnets = nn.ModuleList(_Residual(width, width, groups) for _ in range(2))
        self.attentions = nn.ModuleList([_Attention(width, groups)])

    def forward(self, x: Tensor) -> Tensor:
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class _Level(nn.Module):
    """Blocks, then (`to`) half or twice the side."""

    def __init__(self, before: int, after: int, blocks: int, groups: int, to: str | None) -> None:
        super().__init__()
        self.resnets = nn.ModuleList(_Residual(before if n == 0 else after, after, groups) for n in range(blocks))
        if to is not None:
            padding, stride = (0, 2) if to == "downsamplers" else (1, 1)
            conv = nn.Conv2d(after, after, 3, stride, padding)
            self.add_module(to, nn.ModuleList([nn.ModuleDict({"conv": conv})]))
        self._to = to

    def forward(self, x: Tensor) -> Tensor:
        for block in self.resnets:
            x = block(x)
        if self._to is None:
            return x
        conv = self.get_submodule(f"{self._to}.0.conv")
        return conv(F.pad(x, (0, 1, 0, 1)) if self._to == "downsamplers" else F.interpolate(x, scale_factor=2.0))


class _Encoder(nn.Module):
    """Images [M, 3, S, S] to means and variances [M, 2·C, h, w]."""

    def __init__(self, shape: VAEShape) -> None:
        super().__init__()
        widths, last = shape.channels, len(shape.channels) - 1
        self.conv_in = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down_blocks = nn.ModuleList(
            _Level(before, after, shape.blocks, shape.groups, "downsamplers" if number < last else None)
            for number, (before, after) in enumerate(pairwise((widths[0], *widths)))
        )
        self.mid_block = _Middle(widths[-1], shape.groups)
        self.conv_norm_out = _norm(widths[-1], shape.groups)
        self.conv_out = nn.Conv2d(widths[-1], 2 * shape.latent_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_in(x)
        for level in self.down_blocks:
            x = level(x)
        return self.conv_out(F.silu(self.conv_norm_out(self.mid_block(x))))


class _Decoder(nn.Module):
    """Latents [M, C, h, w] to images [M, 3, S, S]."""

    def __init__(self, shape: VAEShape) -> None:
        super().__init__()
        widths, last = shape.channels[::-1], len(shape.channels) - 1
        self.conv_in = nn.Conv2d(shape.latent_channels, widths[0], 3, padding=1)
        self.mid_block = _Middle(widths[0], shape.groups)
        self.up_blocks = nn.ModuleList(
            _Level(before, after, shape.blocks + 1, shape.groups, "upsamplers" if number < last else None)
            for number, (before, after) in enumerate(pairwise((widths[0], *widths)))
        )
        self.conv_norm_out = _norm(widths[-1], shape.groups)
        self.conv_out = nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.mid_block(self.conv_in(x))
        for level in self.up_blocks:
            x = level(x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


def _norm(channels: int, groups: int) -> nn.GroupNorm:
    return nn.GroupNorm(groups, channels, eps=1e-6)


def _sd_vae(config: VAEConfig) -> ImageVAE:
    how = "fetch it once with `hf download stabilityai/sd-vae-ft-ema --local-dir FOLDER` and name that folder as"
    if config.source is None:
        raise EncoderError(f"{config.name!r} is not downloaded by itself: {how} `source`")
    folder = Path(config.source)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise EncoderError(f"{folder} has no {name}, so it is not a folder of {config.name!r}: {how} `source`")
    shape = _shape(folder / CONFIG)
    state = {_today(name): value for name, value in load_safetensors(folder / WEIGHTS, EncoderError).items()}
    state = {name: value.flatten(1) if _is_attention(name, value) else value for name, value in state.items()}
    stored = checkpoint.Checkpoint("autoencoder", {}, state, None, {})
    return ImageVAE(config, checkpoint.restore(stored, lambda: VAENetwork(shape), folder / WEIGHTS))


def _today(name: str) -> str:
    *above, part, kind = name.split(".")
    return ".".join([*above, EARLIER.get(part, part), kind]) if ".attentions." in name else name


def _is_attention(name: str, value: Tensor) -> bool:
    """Attention's matrices, which some files keep as convolutions of one pixel."""
    return ".attentions." in name and value.dim() == 4 and value.shape[2:] == (1, 1)


def _shape(path: Path) -> VAEShape:
    """The sizes in a description by diffusers; what differs from Stable Diffusion's VAE is refused by name."""
    told = read_json_object(path, EncoderError, remedy="fetch it again")
    fixed: dict[str, Any] = {"_class_name": "AutoencoderKL", "act_fn": "silu", "in_channels": 3, "out_channels": 3}
    fixed |= {"mid_block_add_attention": True, "use_quant_conv": True, "use_post_quant_conv": True}
    fixed |= {"shift_factor": None, "latents_mean": None, "latents_std": None}
    found = checkpoint.config_from(
        VAEShape,
        {
            ours: told[theirs]
            for theirs, ours in {
                "block_out_channels": "channels",
                "layers_per_block": "blocks",
                "latent_channels": "latent_channels",
                "norm_num_groups": "groups",
                "scaling_factor": "scale",
            }.items()
            if theirs in told
        },
    )
    levels = len(found.channels)
    fixed |= {"down_block_types": ["DownEncoderBlock2D"] * levels, "up_block_types": ["UpDecoderBlock2D"] * levels}
    for name, value in fixed.items():
        if told.get(name, value) != value:
            raise EncoderError(f"{path} says {name} = {told[name]!r}; Stable Diffusion's VAE has {value!r}")
    return found


VAES: dict[str, Callable[[VAEConfig], ImageVAE]] = {"sd-vae": _sd_vae}
