"""The world models by name, and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from acid import checkpoint
from acid.errors import AcidError, CheckpointError, look_up
from acid.models import dinowm, jepa, nwm
from acid.models.dinowm import DinoWMConfig, DinoWMLoss, DinoWMLossConfig, DinoWorldModel
from acid.models.jepa import PRESETS as JEPA_PRESETS
from acid.models.jepa import JepaConfig, JepaWorldModel
from acid.models.lewm import LeWMLoss, LeWMLossConfig
from acid.models.nwm import NavigationWorldModel, NWMConfig, NWMLoss, NWMLossConfig
from acid.models.pldm import PLDMLoss, PLDMLossConfig
from acid.types import ActionScaler

AnyWorldModel = JepaWorldModel | DinoWorldModel | NavigationWorldModel
Objective = LeWMLoss | PLDMLoss | DinoWMLoss | NWMLoss
ObjectiveConfig = LeWMLossConfig | PLDMLossConfig | DinoWMLossConfig | NWMLossConfig


@dataclass(frozen=True)
class Kind:
    """A kind of world model: its network in named sizes, and what it is trained to minimise."""

    presets: Mapping[str, Callable[[int], Any]]  # name to configuration, given the action size
    config: type
    model: type
    objective_config: type
    objective: type


KINDS = {
    "lewm": Kind(jepa.PRESETS, JepaConfig, JepaWorldModel, LeWMLossConfig, LeWMLoss),
    "pldm": Kind(jepa.PRESETS, JepaConfig, JepaWorldModel, PLDMLossConfig, PLDMLoss),
    "dinowm": Kind(dinowm.PRESETS, DinoWMConfig, DinoWorldModel, DinoWMLossConfig, DinoWMLoss),
    "nwm": Kind(nwm.PRESETS, NWMConfig, NavigationWorldModel, NWMLossConfig, NWMLoss),
}


def build(kind: str, preset: str, scaler: ActionScaler, **options: Any) -> AnyWorldModel:
    """A fresh world model of a kind in a preset size; options are those of its class, e.g. a DINO-WM's `encoder`
    or an NWM's `tokenizer`."""
    return look_up(KINDS, kind, "world model").model(configuration(kind, preset, scaler.size), scaler, **options)


def configuration(kind: str, preset: str, action_size: int) -> Any:
    """The network of a kind in a preset size."""
    return look_up(look_up(KINDS, kind, "world model").presets, preset, "preset")(action_size)


def objective(kind: str, config: ObjectiveConfig, model: AnyWorldModel) -> Objective:
    """What a kind of world model is trained to minimise."""
    found = look_up(KINDS, kind, "world model")
    if not isinstance(config, found.objective_config):
        raise AcidError(f"the objective of {kind!r} is set by a {found.objective_config.__name__}, got {config!r}")
    return found.objective(config, model)


def save(
    model: AnyWorldModel, kind: str, folder: Path, metadata: Mapping[str, Any], *, half_precision: bool = False
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


def load(folder: str | Path, **options: Any) -> AnyWorldModel:
    """The world model of a checkpoint folder, ready to plan with; options as in `build`."""
    stored = checkpoint.load(folder)
    if stored.kind not in KINDS:
        raise CheckpointError(f"{folder} holds a {stored.kind!r} checkpoint, not a world model ({', '.join(KINDS)})")
    if stored.scaler is None:
        raise CheckpointError(f"{folder} has no action statistics; a model that cannot be de-normalised cannot be used")
    kind = KINDS[stored.kind]
    model = kind.model(checkpoint.config_from(kind.config, stored.config), stored.scaler, **options)
    checkpoint.load_state(model, stored)
    return model.eval().requires_grad_(False)


__all__ = [
    "JEPA_PRESETS",
    "KINDS",
    "AnyWorldModel",
    "DinoWMConfig",
    "DinoWMLoss",
    "DinoWMLossConfig",
    "DinoWorldModel",
    "JepaConfig",
    "JepaWorldModel",
    "Kind",
    "LeWMLoss",
    "LeWMLossConfig",
    "NWMConfig",
    "NWMLoss",
    "NWMLossConfig",
    "NavigationWorldModel",
    "Objective",
    "ObjectiveConfig",
    "PLDMLoss",
    "PLDMLossConfig",
    "build",
    "configuration",
    "load",
    "objective",
    "save",
]
