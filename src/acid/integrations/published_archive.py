"""Checkpoints without a description: PLDM's `_weight.ckpt` and `_object.ckpt`.

The sizes of a PLDM or Le-WM follow from the shapes of its weights. Only the numbers of heads do not: a pickled object
tells them; weights alone are taken to have heads of 64 numbers, as all published ones have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from acid.errors import CheckpointError, some
from acid.integrations.pickled import Shell, read_pickled, shells, state_of
from acid.integrations.published_config import Published
from acid.models import JepaConfig
from acid.nn.causal import CausalConfig
from acid.nn.encoders import ViTConfig

PATTERNS = ("*_weight*.ckpt", "*_object.ckpt", "*.ckpt")  # the first are smaller
HEAD = 64  # numbers


class Archive(NamedTuple):
    """A file of weights, read."""

    published: Published
    tensors: dict[str, Tensor]


def find(folder: Path) -> Path | None:
    """The file of weights in a folder without config.json."""
    for pattern in PATTERNS:
        found = sorted(folder.glob(pattern))
        if len(found) > 1:
            raise CheckpointError(f"{folder} holds {some([file.name for file in found])}: choose one with weights=...")
        if found:
            return found[0]
    return None


def read(file: Path) -> Archive:
    """A Le-WM or PLDM; a CheckpointError says what something else is."""
    content = read_pickled(file)
    tensors = _world_model(state_of(content))
    try:
        config = _infer(tensors, _heads(content))
    except (KeyError, IndexError, ValueError) as error:
        raise CheckpointError(f"{file} does not hold the weights of a Le-WM or PLDM: there is no {error}") from error
    return Archive(Published("pldm", config), tensors)


def _world_model(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without what training keeps beside the world model, e.g. probes."""
    parts = ("encoder.", "predictor.", "action_encoder.", "projector.", "pred_proj.")
    return {name: value for name, value in tensors.items() if name.startswith(parts)}


def _heads(content: Any) -> tuple[int | None, int | None]:
    """Of the encoder and of the predictor, if an object tells them."""
    found: dict[str, int] = {}
    for shell in shells(content) if isinstance(content, Shell) else ():
        for name in ("num_attention_heads", "heads"):
            value = shell.get(name)
            if isinstance(value, int) and value > 0:
                found.setdefault(name, value)
    return found.get("num_attention_heads"), found.get("heads")


def _infer(state: Mapping[str, Tensor], heads: tuple[int | None, int | None]) -> JepaConfig:
    patches = state["encoder.embeddings.patch_embeddings.projection.weight"]
    tokens = state["encoder.embeddings.position_embeddings"].shape[1] - 1
    width, patch = patches.shape[0], patches.shape[-1]
    qkv = state["predictor.transformer.layers.0.attn.to_qkv.weight"]
    size, inner = qkv.shape[1], qkv.shape[0] // 3
    predictor_heads = heads[1] or max(1, inner // HEAD)
    up = next(state[name] for name in state if re.search(r"layers?\.0\.(intermediate\.dense|mlp\.fc1)\.weight$", name))
    projector = state["projector.net.0.weight"]
    actions = state["action_encoder.patch_embed.weight"]
    return JepaConfig(
        action_size=actions.shape[1],
        latent_size=state["projector.net.3.weight"].shape[0],
        projector_width=projector.shape[0],
        action_width=actions.shape[0],
        encoder=ViTConfig(
            image_size=patch * round(tokens**0.5),
            patch=patch,
            width=width,
            depth=_count(state, r"encoder\.(?:encoder\.)?layers?\.(\d+)\."),
            heads=heads[0] or max(1, width // HEAD),
            mlp_width=up.shape[0],
        ),
        predictor=CausalConfig(
            frames=state["predictor.pos_embedding"].shape[1],
            width=size,
            depth=_count(state, r"predictor\.transformer\.layers\.(\d+)\."),
            heads=predictor_heads,
            head_width=inner // predictor_heads,
            mlp_width=state["predictor.transformer.layers.0.mlp.net.1.weight"].shape[0],
            dropout=0.0,
        ),
    )


def _count(state: Mapping[str, Tensor], pattern: str) -> int:
    return 1 + max(int(found[1]) for name in state if (found := re.match(pattern, name)))
