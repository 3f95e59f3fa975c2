"""The world models by name, and their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from acid import checkpoint
from acid.device import resolve_device
from acid.errors import CheckpointError, look_up
from acid.models import dinowm, lewm, nwm, nwm_diffusion, pldm
from acid.models.contract import Batch, FrozenEncoderModel, Kind, LearnedWorldModel
from acid.models.decoder import Decoder, VectorDecoder
from acid.models.dinowm import DinoWorldModel
from acid.models.jepa import JepaConfig, JepaWorldModel
from acid.models.keypoint_decoder import KeypointDecoder
from acid.models.nwm import NavigationWorldModel
from acid.models.nwm_diffusion import DiffusionWorldModel
from acid.models.token_decoder import TokenDecoder
from acid.models.video import VideoModel
from acid.types import ActionScaler

KINDS: dict[str, Kind] = {
    "lewm": lewm.KIND,
    "lewm-shapes": lewm.SHAPES,
    "pldm": pldm.KIND,
    "pldm-shapes": pldm.SHAPES,
    "dinowm": dinowm.KIND,
    "dinowm-symmetric": dinowm.KIND,  # another recipe
    "nwm": nwm.KIND,
    "nwm-diffusion": nwm_diffusion.KIND,
}
DECODERS = {decoder.kind: decoder for decoder in (Decoder, KeypointDecoder, TokenDecoder)}


def build(kind: str, scale: str, scaler: ActionScaler, **options: Any) -> LearnedWorldModel:
    """A fresh world model in a preset size; options are those of its class, e.g. an NWM's `tokenizer`."""
    found = look_up(KINDS, kind, "world model")
    return found.model(look_up(found.presets, scale, "scale")(scaler.size), scaler, **options)


def save(
    model: LearnedWorldModel, kind: str, folder: Path, metadata: Mapping[str, Any], *, half_precision: bool = False
) -> None:
    """Write a checkpoint; half precision stores 16 bits a weight, which load as 32 again."""
    checkpoint.save(
        folder,
        kind=kind,
        config=model.config,
        state=model,
        scaler=model.scaler,
        metadata=metadata,
        dtype=torch.float16 if half_precision else None,
    )


def load(folder: str | Path, *, device: str | torch.device = "cpu", **options: Any) -> LearnedWorldModel:
    """The world model of a checkpoint folder, ready to plan with; options as in `build`."""
    stored = checkpoint.load(folder)
    if stored.kind not in KINDS:
        raise CheckpointError(f"{folder} holds a {stored.kind!r} checkpoint, not a world model ({', '.join(KINDS)})")
    if stored.scaler is None:
        raise CheckpointError(f"{folder} has no action statistics; a model that cannot be de-normalised cannot be used")
    kind, scaler = KINDS[stored.kind], stored.scaler
    model = checkpoint.restore(
        stored, lambda: kind.model(checkpoint.config_from(kind.config, stored.config), scaler, **options), folder
    )
    model.fingerprint = checkpoint.fingerprint(folder)
    return model.to(resolve_device(str(device)))


def load_decoder(folder: str | Path, *, device: str | torch.device = "cpu") -> VectorDecoder | TokenDecoder:
    """The decoder of a checkpoint folder, whichever it is."""
    kind = checkpoint.load(folder).kind
    if kind not in DECODERS:
        raise CheckpointError(f"{folder} holds a {kind!r} checkpoint, not a decoder")
    return DECODERS[kind].load(folder, device=device)


__all__ = [
    "KINDS",
    "Batch",
    "DiffusionWorldModel",
    "DinoWorldModel",
    "FrozenEncoderModel",
    "JepaConfig",
    "JepaWorldModel",
    "Kind",
    "LearnedWorldModel",
    "NavigationWorldModel",
    "VideoModel",
    "build",
    "load",
    "load_decoder",
    "save",
]
