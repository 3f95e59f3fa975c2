"""The world models by name, and their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from acid import checkpoint
from acid.errors import AcidError, CheckpointError, look_up
from acid.models.jepa import PRESETS as JEPA_PRESETS
from acid.models.jepa import JepaConfig, JepaWorldModel
from acid.models.lewm import LeWMConfig, LeWMObjective
from acid.models.pldm import PLDMConfig, PLDMObjective
from acid.types import ActionScaler

Objective = LeWMObjective | PLDMObjective
ObjectiveConfig = LeWMConfig | PLDMConfig
OBJECTIVES: dict[str, tuple[type, type]] = {"lewm": (LeWMConfig, LeWMObjective), "pldm": (PLDMConfig, PLDMObjective)}


def build(kind: str, preset: str, scaler: ActionScaler) -> JepaWorldModel:
    """A fresh world model of a kind in a preset size."""
    look_up(OBJECTIVES, kind, "world model")
    return JepaWorldModel(look_up(JEPA_PRESETS, preset, "preset")(scaler.size), scaler)


def objective(kind: str, config: ObjectiveConfig, model: JepaWorldModel) -> Objective:
    """What a kind of world model is trained to minimise."""
    wanted, cls = look_up(OBJECTIVES, kind, "world model")
    if not isinstance(config, wanted):
        raise AcidError(f"the objective of {kind!r} is set by a {wanted.__name__}, got {config!r}")
    return cls(config, model)


def save(
    model: JepaWorldModel, kind: str, folder: Path, metadata: Mapping[str, Any], *, half_precision: bool = False
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


def load(folder: str | Path) -> JepaWorldModel:
    """The world model of a checkpoint folder, ready to plan with."""
    stored = checkpoint.load(folder)
    if stored.kind not in OBJECTIVES:
        raise CheckpointError(
            f"{folder} holds a {stored.kind!r} checkpoint, not a world model ({', '.join(OBJECTIVES)})"
        )
    if stored.scaler is None:
        raise CheckpointError(f"{folder} has no action statistics; a model that cannot be de-normalised cannot be used")
    model = JepaWorldModel(checkpoint.config_from(JepaConfig, stored.config), stored.scaler)
    checkpoint.load_state(model, stored)
    return model.eval().requires_grad_(False)


__all__ = [
    "JEPA_PRESETS",
    "OBJECTIVES",
    "JepaConfig",
    "JepaWorldModel",
    "LeWMConfig",
    "LeWMObjective",
    "Objective",
    "ObjectiveConfig",
    "PLDMConfig",
    "PLDMObjective",
    "build",
    "load",
    "objective",
    "save",
]
