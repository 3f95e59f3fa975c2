"""Checkpoints without a description: PLDM's `_weight.ckpt` and `_object.ckpt`, and those of NWM and CompACT.

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

PATTERNS = ("*_weight*.ckpt", "*_object.ckpt", "*.pth.tar", "*.ckpt")  # the first are smaller
HEAD = 64  # numbers
# What tells the public networks that ours are not, and what ours lack.
FOREIGN = {
    "x_embedder.proj.": (
        "NWM's CDiT",
        "it denoises the latents of Stable Diffusion's VAE, one frame at any offset, in 250 steps (ours "
        "fills in a few tokens of the next frame), its blocks have 11 AdaLN parts (ours 9) and attention with bias_k "
        "and bias_v (ours has none)",
    ),
    "y_embedder.": (
        "CompACT's world model",
        "its blocks have 11 AdaLN parts (ours 9) and attention with bias_k and bias_v (ours has none), its positions "
        "are [context + 1, tokens] (ours 2 × tokens and an age), its head has an AdaLN and no bias (ours a bias and a "
        "plain norm), and it predicts frames at any offset (ours the next one)",
    ),
    "tokenizer.": (
        "CompACT's tokenizer",
        "its Q-former normalises after each layer (ours before) and its codec is MAGE's VQGAN of 1 024 codes (ours is "
        "Janus's of 16 384)",
    ),
}


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
    refuse_foreign(content, file)
    tensors = _world_model(state_of(content))
    try:
        config = _infer(tensors, _heads(content))
    except (KeyError, IndexError, ValueError) as error:
        raise CheckpointError(f"{file} does not hold the weights of a Le-WM or PLDM: there is no {error}") from error
    return Archive(Published("pldm", config), tensors)


def refuse_foreign(content: Any, file: Path) -> None:
    """A CheckpointError that names what differs, for the public networks of NWM and CompACT, which ours are not."""
    if not isinstance(content, Mapping):
        return
    inner = next(
        (content[key] for key in ("ema", "model", "state_dict") if isinstance(content.get(key), Mapping)), content
    )
    names = {str(name).removeprefix("_orig_mod.").removeprefix("module.") for name in inner}
    for prefix, (what, difference) in FOREIGN.items():
        if any(name.startswith(prefix) for name in names):
            raise CheckpointError(
                f"{file} holds {what}, which is another network than the one here: {difference}; train ours with "
                "`acid train`, or plan with theirs as your own world model"
            )


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
