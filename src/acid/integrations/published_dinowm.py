"""DINO-WM as its authors publish it: `checkpoints/model_latest.pth`, a dict of pickled modules, beside `hydra.yaml`.

The predictor and the embeddings of actions and proprioception become those of our network, name by name. The encoder is
not in the file; it is DINOv2, as for a model that is trained here. The decoder and the optimisers are left out.

A token of the published predictor holds the picture (384 numbers), proprioception (10) and the action (10): width 404,
or 394 for a model that was trained without proprioception.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from acid.errors import CheckpointError, some
from acid.files import reason
from acid.integrations.pickled import Shell, read_pickled, shells, state_of
from acid.models.dinowm import DinoWMConfig, ProprioConfig
from acid.models.patch_encoders import PatchEncoderConfig
from acid.nn.causal import CausalConfig

PATTERN, LATEST, FOLDER = "model_*.pth", "model_latest.pth", "checkpoints"
SOURCE = "facebook/dinov2-small"  # where DINOv2 ViT-S/14 is, unless a folder is given
FEATURES = 384  # of its patches
TOKENS = 196  # of a frame, where the file does not tell
HEAD = 64  # numbers, where the file does not tell
PATCH, PIXELS = 14, 16  # along a token's side: in what the encoder sees, in what the model is given
_RENAMED = (  # in the predictor; the rest of a name stays
    (r"transformer\.norm\.", "norm."),
    (r"transformer\.layers\.(\d+)\.0\.norm\.", r"blocks.\1.attention.norm."),
    (r"transformer\.layers\.(\d+)\.0\.to_qkv\.", r"blocks.\1.attention.qkv."),
    (r"transformer\.layers\.(\d+)\.0\.to_out\.0\.", r"blocks.\1.attention.out."),
    (r"transformer\.layers\.(\d+)\.1\.net\.([014])\.", r"blocks.\1.mlp.\2."),
)


class PublishedDino(NamedTuple):
    """A file, read; the statistics of proprioception are not in it, and are 0 and 1 here."""

    config: DinoWMConfig
    state: dict[str, Tensor]  # by the names of our network


def find(folder: Path, name: str | None = None) -> Path | None:
    """The weights in a folder: those with this name, or the latest, or those of the only epoch."""
    if name is not None:
        return folder / name if fnmatch.fnmatch(Path(name).name, PATTERN) else None
    for place in (folder / FOLDER, folder):
        found = sorted(place.glob(PATTERN))
        if place / LATEST in found:
            return place / LATEST
        if len(found) > 1:
            names = [str(file.relative_to(folder)) for file in found]
            raise CheckpointError(f"{folder} holds {some(names)}: choose one with weights=...")
        if found:
            return found[0]
    return None


def read(file: Path, *, source: str | None = None) -> PublishedDino:
    """A CheckpointError says what differs from our network.

    source: a folder with DINOv2, or its name on the hub if it is in the cache.
    """
    parts = _parts(read_pickled(file), file)
    try:
        return _convert(parts, source or SOURCE)
    except CheckpointError as error:
        raise CheckpointError(f"{file} cannot be converted: {error}") from error
    except KeyError as error:
        raise CheckpointError(f"{file} cannot be converted: its weights lack {error}") from error
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be converted: a weight has an absurd shape ({reason(error)})") from error


def _parts(content: Any, file: Path) -> dict[str, Any]:
    names = ("predictor", "action_encoder", "proprio_encoder")
    parts = {name: content[name] for name in names if isinstance(content, Mapping) and name in content}
    missing = [name for name in names[:2] if not isinstance(parts.get(name), Shell | Mapping)]
    if missing:
        raise CheckpointError(f"{file} is no checkpoint of DINO-WM: it has no {some(missing)}")
    if "encoder" in content:
        raise CheckpointError(
            f"{file} holds an encoder of its own, trained with the model; only models on the frozen DINOv2 can be used"
        )
    return parts


def _convert(parts: Mapping[str, Any], source: str) -> PublishedDino:
    predictor, module = state_of(parts["predictor"]), parts["predictor"]
    actions = _embedding("action_encoder", parts["action_encoder"])
    embedding = _embedding("proprio_encoder", parts["proprio_encoder"]) if "proprio_encoder" in parts else None
    width, used = predictor["pos_embedding"].shape[-1], actions["weight"].shape[0]
    if embedding is not None and width == FEATURES + used:  # it was saved, and repeated no times in a token
        embedding = None
    proprio = None if embedding is None else _unit_proprio(embedding)
    wanted = FEATURES + used + (0 if proprio is None else proprio.width)
    if width != wanted:
        told = "" if proprio is None else f", {proprio.width} of proprioception"
        raise CheckpointError(
            f"its tokens have {width} numbers, which are not {FEATURES} of DINOv2 ViT-S/14{told} and {used} of the "
            "action; only embeddings that lie once in every token can be used"
        )
    tokens = _tokens(module)
    side = math.isqrt(tokens)
    positions = predictor["pos_embedding"]
    if side**2 != tokens or positions.numel() % (tokens * width):
        raise CheckpointError(f"positions {list(positions.shape)} are not those of frames of {tokens} tokens")
    frames = positions.numel() // (tokens * width)
    config = DinoWMConfig(
        action_size=actions["weight"].shape[1],
        encoder=PatchEncoderConfig("dinov2-vits14", side * PIXELS, side * PATCH, source=source),
        latent_size=width - used,
        predictor=_predictor(predictor, module, frames, width),
        action_width=used,
        proprio=proprio,
    )
    state = {f"dynamics.predictor.{new}": value for new, value in _renamed(predictor)}
    state["dynamics.predictor.positions"] = positions.reshape(frames, tokens, width)
    state |= {f"dynamics.embed_action.{name}": value for name, value in actions.items()}
    state |= {f"proprio.embed.{name}": value for name, value in (embedding or {}).items()}
    return PublishedDino(config, state)


def _embedding(name: str, module: Any) -> dict[str, Tensor]:
    """The weights of a convolution of width 1, as those of a linear map."""
    state = state_of(module)
    weight = state.get("patch_embed.weight")
    if weight is None or state.keys() != {"patch_embed.weight", "patch_embed.bias"}:
        raise CheckpointError(f"its {name} holds {some(sorted(state)) or 'nothing'} instead of patch_embed")
    if weight.dim() != 3 or weight.shape[2] != 1:
        raise CheckpointError(f"its {name} looks at several steps at once, {list(weight.shape)}, which ours does not")
    return {"weight": weight[..., 0], "bias": state["patch_embed.bias"]}


def _unit_proprio(embedding: Mapping[str, Tensor]) -> ProprioConfig:
    width, size = embedding["weight"].shape
    return ProprioConfig(width, (0.0,) * size, (1.0,) * size)


def _tokens(module: Any) -> int:
    """Tokens of a frame: as many as the first one of them may look at."""
    for part in shells(module) if isinstance(module, Shell) else ():
        mask = part.get("bias")
        if isinstance(mask, Tensor) and mask.dim() == 4:
            return int(mask[0, 0, 0].sum())
    return TOKENS


def _predictor(state: Mapping[str, Tensor], module: Any, frames: int, width: int) -> CausalConfig:
    inner = state["transformer.layers.0.0.to_qkv.weight"].shape[0] // 3
    told = [part.get("heads") for part in shells(module)] if isinstance(module, Shell) else []
    heads = next((number for number in told if isinstance(number, int) and number > 0), max(1, inner // HEAD))
    layers = {int(found[1]) for name in state if (found := re.match(r"transformer\.layers\.(\d+)\.", name))}
    return CausalConfig(
        frames=frames,
        width=width,
        depth=len(layers),
        heads=heads,
        head_width=inner // heads,
        mlp_width=state["transformer.layers.0.1.net.1.weight"].shape[0],
    )


def _renamed(state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Weights by our names; positions are not among them, and a name that is not known is an error."""
    for name, value in state.items():
        if name == "pos_embedding":
            continue
        for pattern, ours in _RENAMED:
            if found := re.match(pattern, name):
                yield found.expand(ours) + name[found.end() :], value
                break
        else:
            raise CheckpointError(f"its predictor has {name}, which ours has not")
