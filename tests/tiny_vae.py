"""A VAE as small as it can be, in the layout of diffusers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acid.files import save_safetensors
from acid.models.vae import CONFIG, WEIGHTS, ImageVAE, VAEConfig, VAENetwork, VAEShape, load_vae

SHAPE = VAEShape(channels=(8, 12, 16, 16), groups=4)
DESCRIPTION = {
    "_class_name": "AutoencoderKL",
    "act_fn": "silu",
    "block_out_channels": [8, 12, 16, 16],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "in_channels": 3,
    "latent_channels": 4,
    "layers_per_block": 2,
    "norm_num_groups": 4,
    "out_channels": 3,
    "sample_size": 256,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
}


def weights() -> dict[str, Tensor]:
    """The same on every machine and in every version: waves, and norms that scale by about 1."""
    found = {}
    for number, (name, value) in enumerate(sorted(VAENetwork(SHAPE).state_dict().items())):
        waves = 0.3 * (torch.arange(value.numel()) * 0.7 + number).sin().reshape(value.shape)
        small = waves / value[0].numel() ** 0.5 if value.dim() > 1 else waves
        found[name] = small + float("norm" in name and name.endswith("weight"))
    return found


def write_vae(folder: Path, change: Callable[[dict[str, Tensor]], Any] = lambda state: None, **described: Any) -> Path:
    """described: entries of the description in place of the usual ones."""
    state = weights()
    change(state)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(DESCRIPTION | described))
    save_safetensors(folder / WEIGHTS, state)
    return folder


def tiny_vae(folder: Path, image_size: int = 64) -> ImageVAE:
    return load_vae(VAEConfig(image_size=image_size, source=str(write_vae(folder))))


def frozen(kind: str, folder: Path) -> dict[str, Any]:
    """What a kind of world model needs besides a preset to be built in its lite size."""
    return {"encoder": tiny_vae(folder)} if kind == "nwm-diffusion" else {}
