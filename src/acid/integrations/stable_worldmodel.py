"""Weights of Le-WM and PLDM between this library and stable-worldmodel: the same network under other names.

Only names and layouts change (fused against separate projections, a 1 × 1 convolution against a linear map), so a
round trip is exact. The encoder there is Hugging Face's `ViTModel`, whose parameters are spelled differently by
transformers 4 and 5; both are read, and either can be written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from acid.errors import CheckpointError, some
from acid.models import JepaConfig, JepaWorldModel
from acid.nn.encoders import ViTConfig
from acid.types import ActionScaler

Transformers = Literal[4, 5]  # major version, i.e. which spelling of the ViT


class _Spelling(NamedTuple):
    """How a version of transformers names the parts of a ViT layer."""

    layer: str
    qkv: tuple[str, str, str]
    out: str
    up: str
    down: str


_SPELLINGS: dict[Transformers, _Spelling] = {
    4: _Spelling(
        "encoder.encoder.layer",
        ("attention.attention.query", "attention.attention.key", "attention.attention.value"),
        "attention.output.dense",
        "intermediate.dense",
        "output.dense",
    ),
    5: _Spelling(
        "encoder.layers",
        ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        "attention.o_proj",
        "mlp.fc1",
        "mlp.fc2",
    ),
}
# Parts of a ViTModel that play no role here, and heads that may sit beside the world model.
_UNUSED = ("encoder.pooler.", "encoder.embeddings.mask_token", "idm.", "_probes.")


class _Pair(NamedTuple):
    """One tensor here and the tensors there that make it up, one after the other along the first dimension."""

    ours: str
    theirs: tuple[str, ...]


def to_peer_state(model: JepaWorldModel, *, transformers: Transformers = 5) -> dict[str, Tensor]:
    """Weights for stable-worldmodel's `LeWM` or `PLDM`, spelled for a major version of transformers."""
    state = model.state_dict()
    peer: dict[str, Tensor] = {}
    for ours, theirs in _pairs(model.config, transformers):
        parts = state[ours].chunk(len(theirs)) if len(theirs) > 1 else (state[ours],)
        peer.update((name, _to_peer_shape(name, part)) for name, part in zip(theirs, parts, strict=True))
    return peer


def from_peer_state(state: Mapping[str, Tensor], config: JepaConfig) -> dict[str, Tensor]:
    """Weights for `JepaWorldModel.load_state_dict`; a CheckpointError names what is missing, unknown or misshapen."""
    spelling = _spelling_of(state)
    _check(state, _peer_shapes(config, spelling))
    result: dict[str, Tensor] = {}
    for ours, theirs in _pairs(config, spelling):
        parts = [_from_peer_shape(name, state[name]) for name in theirs]
        result[ours] = torch.cat(parts) if len(parts) > 1 else parts[0]
    return result


def _pairs(config: JepaConfig, transformers: Transformers) -> Iterator[_Pair]:
    if not isinstance(config.encoder, ViTConfig) or config.latent_size != config.predictor.width:
        raise CheckpointError(
            "stable-worldmodel's network has a ViT encoder and a predictor as wide as its latents, not a "
            f"{config.encoder.kind!r} encoder and width {config.predictor.width} for latents of {config.latent_size}"
        )
    if config.ensemble != 1:
        raise CheckpointError(f"stable-worldmodel's network has one predictor, not an ensemble of {config.ensemble}")
    yield from _encoder(config.encoder.depth, _SPELLINGS[transformers])
    yield from _projector("projector", "projector")
    yield from _layer("dynamics.0.action_embedding.0", "action_encoder.patch_embed")
    yield from _layer("dynamics.0.action_embedding.1", "action_encoder.embed.0")
    yield from _layer("dynamics.0.action_embedding.3", "action_encoder.embed.2")
    yield from _predictor(config.predictor.depth)
    yield from _projector("dynamics.0.projector", "pred_proj")


def _encoder(depth: int, spelling: _Spelling) -> Iterator[_Pair]:
    yield _Pair("encoder.token", ("encoder.embeddings.cls_token",))
    yield _Pair("encoder.positions", ("encoder.embeddings.position_embeddings",))
    yield from _layer("encoder.patches", "encoder.embeddings.patch_embeddings.projection")
    yield from _layer("encoder.norm", "encoder.layernorm")
    for index in range(depth):
        ours, theirs = f"encoder.blocks.{index}", f"{spelling.layer}.{index}"
        yield from _layer(f"{ours}.norm_attention", f"{theirs}.layernorm_before")
        yield from _layer(f"{ours}.qkv", *(f"{theirs}.{name}" for name in spelling.qkv))
        yield from _layer(f"{ours}.out", f"{theirs}.{spelling.out}")
        yield from _layer(f"{ours}.norm_mlp", f"{theirs}.layernorm_after")
        yield from _layer(f"{ours}.up", f"{theirs}.{spelling.up}")
        yield from _layer(f"{ours}.down", f"{theirs}.{spelling.down}")


def _predictor(depth: int) -> Iterator[_Pair]:
    yield _Pair("dynamics.0.predictor.positions", ("predictor.pos_embedding",))
    yield from _layer("dynamics.0.predictor.norm", "predictor.transformer.norm")
    for index in range(depth):
        ours, theirs = f"dynamics.0.predictor.blocks.{index}", f"predictor.transformer.layers.{index}"
        yield from _layer(f"{ours}.attention.norm", f"{theirs}.attn.norm")
        yield _Pair(f"{ours}.attention.qkv.weight", (f"{theirs}.attn.to_qkv.weight",))
        yield from _layer(f"{ours}.attention.out", f"{theirs}.attn.to_out.0")
        for part in (0, 1, 4):
            yield from _layer(f"{ours}.mlp.{part}", f"{theirs}.mlp.net.{part}")
        yield from _layer(f"{ours}.modulation", f"{theirs}.adaLN_modulation.1")


def _projector(ours: str, theirs: str) -> Iterator[_Pair]:
    for part in (0, 1, 3):
        yield from _layer(f"{ours}.{part}", f"{theirs}.net.{part}")
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        yield _Pair(f"{ours}.1.{name}", (f"{theirs}.net.1.{name}",))


def _layer(ours: str, *theirs: str) -> Iterator[_Pair]:
    for name in ("weight", "bias"):
        yield _Pair(f"{ours}.{name}", tuple(f"{their}.{name}" for their in theirs))


def _to_peer_shape(name: str, tensor: Tensor) -> Tensor:
    """Theirs embeds actions with a 1 × 1 convolution: one more dimension."""
    return tensor.unsqueeze(-1) if name == "action_encoder.patch_embed.weight" else tensor


def _from_peer_shape(name: str, tensor: Tensor) -> Tensor:
    return tensor.squeeze(-1) if name == "action_encoder.patch_embed.weight" else tensor


def _spelling_of(state: Mapping[str, Tensor]) -> Transformers:
    return 4 if any(name.startswith(_SPELLINGS[4].layer) for name in state) else 5


def _check(state: Mapping[str, Tensor], wanted: Mapping[str, torch.Size]) -> None:
    missing = sorted(wanted.keys() - state.keys())
    unknown = sorted(name for name in state.keys() - wanted.keys() if not name.startswith(_UNUSED))
    misshapen = [
        f"{name} of shape {list(state[name].shape)} instead of {list(shape)}"
        for name, shape in wanted.items()
        if name in state and state[name].shape != shape
    ]
    told = [
        f"{verb} {some(names)}"
        for verb, names in (("lacks", missing), ("has the unknown", unknown), ("has", misshapen))
        if names
    ]
    if told:
        raise CheckpointError(f"this is not a Le-WM or PLDM of that configuration: its state {' and '.join(told)}")


def _peer_shapes(config: JepaConfig, transformers: Transformers) -> dict[str, torch.Size]:
    size = config.action_size
    with torch.device("meta"):  # shapes only, no memory
        model = JepaWorldModel(config, ActionScaler((0.0,) * size, (1.0,) * size))
    return {name: tensor.shape for name, tensor in to_peer_state(model, transformers=transformers).items()}
