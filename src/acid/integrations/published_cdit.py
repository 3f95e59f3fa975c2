"""The CDiT of NWM's authors and of CompACT's, name by name: what both have in common, and NWM's own on a VAE's latents.

Sizes follow from the shapes of the weights. The number of heads does not: CompACT's files tell it, and NWM's networks
of a width have the number that goes with it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from acid.errors import CheckpointError
from acid.integrations.published_weights import Content, Converted, Weights, guarded, mapping
from acid.models.cdit import CDiTConfig
from acid.models.nwm_diffusion import NWMDiffusionConfig
from acid.models.vae import ImageVAE, VAEConfig, load_vae

NUMBERS = ("x", "y", "angle")  # of an action
ACTIONS = {"min": [-2.5, -4], "max": [5, 4]}  # waypoint units, mapped to −1..1
# Our AdaLN parts in theirs: shift, scale and gate of self-attention, cross-attention and MLP, then the context's two.
PARTS = (0, 1, 2, 5, 6, 7, 8, 9, 10, 3, 4)
_BLOCK = {"attn.qkv": "qkv", "attn.proj": "out", "cttn.out_proj": "cross.out", "mlp.fc1": "mlp.0", "mlp.fc2": "mlp.2"}
PATCHES = "x_embedder.proj.weight"  # only NWM's own network has it
VAE_STRIDE = 8  # of Stable Diffusion's
SIZES = {384: (12, 6), 768: (12, 12), 1024: (24, 16), 1152: (28, 16)}  # width to depth and heads: S, B, L, XL


class Trunk(NamedTuple):
    """What both networks have in common."""

    sizes: CDiTConfig
    waves: int
    state: dict[str, Tensor]


def trunk(content: Content, weights: Weights, width: int) -> Trunk:
    """Blocks, embeddings of the action and of the time, and the modulation of the output."""
    depth, state = weights.depth("blocks"), {}
    mlp_width = content.state["blocks.0.mlp.fc1.weight"].shape[0]
    waves = content.state["time_embedder.mlp.0.weight"].shape[1]
    usual = SIZES.get(width, (depth, max(1, width // 64)))[1]
    heads = content.setting("model.generator.num_heads", usual)
    for number, name in enumerate(NUMBERS):
        state |= _waves(weights, f"y_embedder.{name}_emb", f"embed_action.mlps.{number}")
    state |= _waves(weights, "time_embedder", "embed_time.mlps.0")
    state |= weights.linear("final_layer.adaLN_modulation.1", "modulation")
    for number in range(depth):
        state |= _block(weights, f"blocks.{number}.", width)
    return Trunk(CDiTConfig(width, depth, heads, mlp_width), waves, state)


def check_actions(content: Content) -> None:
    limits = mapping(content.setting("dataset.action_stats", ACTIONS))
    if any([float(number) for number in limits.get(end, ())] != ACTIONS[end] for end in ACTIONS):
        raise CheckpointError(f"its actions are mapped from {limits}, ours from {ACTIONS} waypoint units")


def is_denoiser(content: Content) -> bool:
    """Whether this is NWM's own network."""
    return PATCHES in content.state


def denoiser(content: Content, file: Path, *, source: str | None, steps: int | None) -> tuple[Converted, ImageVAE]:
    """NWM's own network in ours, with the VAE of a folder; steps: in which a rollout takes the noise away, else 250."""
    return guarded(file, lambda: _denoiser(content, source, steps))


def _denoiser(content: Content, source: str | None, steps: int | None) -> tuple[Converted, ImageVAE]:
    weights = Weights(content.state)
    squares, positions = weights.take(PATCHES, 4), weights.take("pos_embed", 3)
    width, channels, patch, _ = squares.shape
    context, side = len(positions) - 1, math.isqrt(positions.shape[1])
    if context < 1 or side**2 != positions.shape[1] or content.setting("dataset.context_size", context) != context:
        raise CheckpointError(f"its positions {list(positions.shape)} are not those of a context and a next frame")
    vae = _vae(source, channels, side * patch)
    sizes, waves, state = trunk(content, weights, width)
    if SIZES.get(width, (sizes.depth, 0))[0] != sizes.depth:
        raise CheckpointError(f"it has {sizes.depth} layers of width {width}, and NWM's have {SIZES[width][0]}")
    state |= _waves(weights, "t_embedder", "embed_noise.mlps.0")
    state |= {"positions": positions, "embed.weight": squares.flatten(1)}
    state["embed.bias"] = weights.take("x_embedder.proj.bias", 1)
    for kind in ("weight", "bias"):  # theirs: rows and columns of a square, then noise and variance of each channel
        theirs = weights.take(f"final_layer.linear.{kind}")
        if len(theirs) != 2 * channels * patch**2:
            raise CheckpointError(
                f"final_layer.linear.{kind} has {len(theirs)} numbers a square, not those of a noise and its variance"
            )
        parts = theirs.unflatten(0, (patch, patch, 2, channels))
        state[f"head.{kind}"] = parts.movedim((2, 3), (0, 1)).flatten(0, 3)
    weights.finish()
    config = NWMDiffusionConfig(len(NUMBERS), vae.config, sizes, context=context, patch=patch, waves=waves)
    config = config if steps is None else replace(config, steps=steps)
    return Converted(config, {f"dynamics.{name}": value for name, value in state.items()}), vae


def _vae(source: str | None, channels: int, grid: int) -> ImageVAE:
    if source is None:
        raise CheckpointError(
            "its latents are those of Stable Diffusion's VAE, which is not in the file: fetch it once with `hf "
            "download stabilityai/sd-vae-ft-ema --local-dir FOLDER` and name that folder as encoder (--encoder FOLDER)"
        )
    found = load_vae(VAEConfig(image_size=VAE_STRIDE * grid, source=source))
    if (found.channels, found.grid) != (channels, grid):
        raise CheckpointError(
            f"it denoises latents of {channels} channels and side {grid}, and those of the VAE in {source} have "
            f"{found.channels} and {found.grid}"
        )
    return found


def _waves(weights: Weights, theirs: str, ours: str) -> dict[str, Tensor]:
    """An MLP over cosines and sines, of which ours has the sines first."""
    found = dict(weights.linear(f"{theirs}.mlp.0", f"{ours}.0")) | dict(weights.linear(f"{theirs}.mlp.2", f"{ours}.2"))
    first = found[f"{ours}.0.weight"]
    half = first.shape[1] // 2
    found[f"{ours}.0.weight"] = torch.cat([first[:, half : 2 * half], first[:, :half], first[:, 2 * half :]], 1)
    return found


def _block(weights: Weights, name: str, width: int) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for theirs, ours in _BLOCK.items():
        state |= weights.linear(name + theirs, name + ours)
    for kind in ("weight", "bias"):
        whole = weights.take(f"{name}cttn.in_proj_{kind}")
        state[f"{name}cross.query.{kind}"], state[f"{name}cross.key_value.{kind}"] = whole[:width], whole[width:]
        parts = weights.take(f"{name}adaLN_modulation.1.{kind}").unflatten(0, (len(PARTS), width))
        state[f"{name}modulation.{kind}"] = parts[list(PARTS)].flatten(0, 1)
    extra = [weights.take(f"{name}cttn.bias_{kind}", 3).reshape(1, width) for kind in ("k", "v")]
    return state | {f"{name}cross.extra": torch.stack(extra)}
