"""Published world models: stable-worldmodel's folders with `config.json` and `weights*.pt`, PLDM's archives, DINO-WM's
files, the world models and tokenizers of CompACT, and NWM's own CDiT.

Nothing in such a folder is executed. The configuration is read by `published_config`, the weights as bare tensors.
Statistics of the actions are not in the folder; they come from the dataset that the model was trained on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from acid import checkpoint, models
from acid.errors import CheckpointError, DataError, some
from acid.files import existing, load_torch, read_json
from acid.integrations import published_archive, published_cdit, published_compact, published_dinowm
from acid.integrations.pickled import state_of
from acid.integrations.published_config import Published, parse
from acid.integrations.published_weights import Content
from acid.integrations.stable_worldmodel import from_peer_state
from acid.models import (
    DiffusionWorldModel,
    DinoWorldModel,
    JepaWorldModel,
    LearnedWorldModel,
    NavigationWorldModel,
    VideoModel,
)
from acid.models.compact import CompactTokenizer
from acid.types import ActionScaler

CONFIG = "config.json"
WEIGHTS = "weights*.pt"

M = TypeVar("M", bound=LearnedWorldModel)
Folder = str | os.PathLike[str]
Statistics = ActionScaler | Literal["identity"] | None


def load_published(
    folder: Folder,
    *,
    action_scaler: Statistics = None,
    weights: str | None = None,
    proprio_scaler: Statistics = None,
    encoder: str | None = None,
    tokenizer: Folder | CompactTokenizer | None = None,
    denoising_steps: int | None = None,
) -> LearnedWorldModel:
    """The Le-WM, PLDM, DINO-WM or NWM of a published folder, ready to plan with.

    `action_scaler` holds the statistics of the training actions, see `acid.data.fit_scaler`; "identity" is for callers
    who normalise actions themselves. `weights` names one of several weight files. For a DINO-WM, `proprio_scaler` are
    the statistics of its proprioception, if it has some, and `encoder` is a folder with DINOv2 ViT-S/14. An NWM has
    actions of its own units. On the tokens of CompACT it needs its `tokenizer`, see `load_tokenizer`; NWM's own network
    needs as `encoder` a folder with Stable Diffusion's VAE, and imagines in `denoising_steps`, by default 250.
    """
    if (found := _compact(Path(folder), weights)) is not None:
        if (action_scaler, proprio_scaler) != (None, None):
            raise CheckpointError(f"{folder} holds an NWM, whose action statistics are known: leave them out")
        return _load_nwm(*found, tokenizer, encoder, denoising_steps)
    _check_no_nwm(folder, tokenizer, denoising_steps)
    dino = _dinowm_file(Path(folder), weights)
    if dino is not None:
        return _load_dinowm(dino, action_scaler, proprio_scaler, encoder)
    if proprio_scaler is not None or encoder is not None:
        raise CheckpointError(f"{folder} holds no DINO-WM: leave proprio_scaler and encoder out")
    described = _described(Path(folder))
    file = _weights_file(Path(folder), weights)
    if described is None:
        (_, config), tensors = published_archive.read(file)
    else:
        config, tensors = described.config, _read_tensors(file)
    _check_finite(tensors, file)
    scaler = _scaler(action_scaler, config.action_size, folder)
    try:
        state = from_peer_state(tensors, config)
    except CheckpointError as error:
        raise CheckpointError(f"{file} does not fit {CONFIG} beside it: {error}") from error
    stored = checkpoint.Checkpoint("published", {}, state, scaler, {})
    return checkpoint.restore(stored, lambda: JepaWorldModel(config, scaler), folder)


def load_tokenizer(
    folder: Folder, *, weights: str | None = None, encoder: str | None = None, image_size: int | None = None
) -> CompactTokenizer:
    """The tokenizer of a folder of CompACT's; `encoder` is a folder with DINOv3 ViT-B/16.

    `image_size` are the pixels along a side that DINOv3 looks at, where a world model's are not the tokenizer's own.
    """
    found = _compact(Path(folder), weights)
    if found is None:
        raise CheckpointError(
            f"{folder} holds no tokenizer; a world model needs the dataset that it was trained on (--data)"
        )
    file, content = found
    config, state = published_compact.tokenizer(content, file, source=encoder, image_size=image_size)
    stored = checkpoint.Checkpoint("published", {}, state, None, {})
    made = checkpoint.restore(stored, lambda: CompactTokenizer(config), file)
    published_compact.check_encoder(content, made, file)
    return made


def _compact(folder: Path, weights: str | None) -> tuple[Path, Content] | None:
    """The file and its content, if a folder is one of CompACT or of NWM."""
    file = None if (folder / CONFIG).exists() else published_compact.find(folder, weights)
    content = None if file is None else published_compact.open_file(file)
    if file is None or content is None:
        return None
    _check_finite(content.state, file)
    return file, content


def _check_no_nwm(folder: Folder, tokenizer: object, denoising_steps: object) -> None:
    if tokenizer is not None:
        raise CheckpointError(f"{folder} holds no NWM: leave the tokenizer out")
    if denoising_steps is not None:
        raise CheckpointError(f"{folder} holds no NWM on latents of a VAE: leave denoising_steps out")


def _load_nwm(
    file: Path,
    content: Content,
    tokenizer: Folder | CompactTokenizer | None,
    encoder: str | None,
    steps: int | None,
) -> VideoModel:
    from acid.data.poses import SCALER  # needs the data extra

    if content.is_tokenizer:
        raise CheckpointError(f"{file} holds a tokenizer, which has no actions: leave the dataset out (--data)")
    if published_cdit.is_denoiser(content):
        if tokenizer is not None:
            raise CheckpointError(
                f"{file} denoises latents of a VAE: leave the tokenizer out, and name the VAE's folder as encoder"
            )
        (config, state), vae = published_cdit.denoiser(content, file, source=encoder, steps=steps)
        stored = checkpoint.Checkpoint("published", {}, state, SCALER, {})
        return checkpoint.restore(stored, lambda: DiffusionWorldModel(config, SCALER, vae), file)
    if (encoder, steps) != (None, None):
        raise CheckpointError(f"{file} predicts tokens: give its tokenizer, and neither encoder nor denoising_steps")
    if tokenizer is None:
        raise CheckpointError(
            f"{file} predicts tokens of CompACT's tokenizer, which is not in it: convert that one first, "
            "and name its folder as tokenizer"
        )
    made = tokenizer if isinstance(tokenizer, CompactTokenizer) else CompactTokenizer.load(Path(tokenizer))
    config, state = published_compact.world_model(content, made, file)
    stored = checkpoint.Checkpoint("published", {}, state, SCALER, {})
    return checkpoint.restore(stored, lambda: NavigationWorldModel(config, SCALER, made), file)


def _dinowm_file(folder: Path, weights: str | None) -> Path | None:
    """The file of weights, if a folder is one of DINO-WM."""
    return None if (folder / CONFIG).exists() else published_dinowm.find(folder, weights)


def _load_dinowm(file: Path, actions: Statistics, proprio: Statistics, source: str | None) -> DinoWorldModel:
    config, tensors = published_dinowm.read(file, source=source)
    _check_finite(tensors, file)
    scaler = _scaler(actions, config.action_size, file)
    if config.proprio is not None:
        statistics = _proprio(proprio, len(config.proprio.mean), file)
        config = replace(config, proprio=replace(config.proprio, mean=statistics.mean, std=statistics.std))
    elif proprio is not None:
        raise CheckpointError(f"the model of {file} looks at pixels only: leave proprio_scaler out")
    stored = checkpoint.Checkpoint("published", {}, tensors, scaler, {})
    return checkpoint.restore(stored, lambda: DinoWorldModel(config, scaler), file)


def read_config(folder: Folder, weights: str | None = None) -> Published:
    """Which world model a published folder holds, and its sizes; without config.json they follow from the weights.

    Those of CompACT and NWM are told by what `load_tokenizer` and `load_published` make of them.
    """
    dino = _dinowm_file(Path(folder), weights)
    if dino is not None:
        return Published("dinowm", published_dinowm.read(dino).config)
    return _described(Path(folder)) or published_archive.read(_weights_file(Path(folder), weights)).published


def _described(folder: Path) -> Published | None:
    if not (folder / CONFIG).exists() and published_archive.find(folder) is not None:
        return None
    file = _existing(folder, CONFIG)
    return parse(read_json(file, CheckpointError, remedy="fetch it again"), str(file))


def convert(
    folder: Folder,
    data: Folder,
    out: Folder,
    *,
    task: str | None = None,
    held_out: float = 0.0,
    weights: str | None = None,
    encoder: str | None = None,
    tokenizer: Folder | None = None,
    denoising_steps: int | None = None,
) -> LearnedWorldModel:
    """Write a published world model to `out` as a checkpoint of ours, with the action statistics of a dataset.

    The statistics are those of all episodes of `data`, as in the training of published models. `held_out` is the share
    of its episodes that verifiers shall not see and evaluation may use; the world model itself may have seen them. It
    is written beside the dataset, see `acid.data.partition`.
    """
    from acid.data import Episodes, fit_scaler, partition  # needs the data extra, which loading does not

    _check_apart(folder, out)
    found = _compact(Path(folder), weights)
    if found is not None:
        model = _load_nwm(*found, tokenizer, encoder, denoising_steps)
        kind = "nwm" if isinstance(model, NavigationWorldModel) else "nwm-diffusion"
        with Episodes(data, require=("pixels", "action", "pose")) as episodes:
            parts, attributes = partition(episodes, held_out=held_out, frameskip=1), episodes.attributes
        metadata = _metadata(Path(folder), found[0], kind, task)
        if kind == "nwm":
            metadata["tokenizer"] = model.encoder_fingerprint
        return _save(model, kind, out, metadata, Path(data), attributes, parts.as_dict())
    _check_no_nwm(folder, tokenizer, denoising_steps)
    kind, config = read_config(folder, weights)
    file = _dinowm_file(Path(folder), weights) or _weights_file(Path(folder), weights)
    with Episodes(data) as episodes:
        frameskip = _frameskip(config.action_size, episodes.shape("action"), data)
        scaler = fit_scaler(episodes, range(len(episodes)), frameskip)
        proprio_stats = getattr(config, "proprio", None) and fit_scaler(
            episodes, range(len(episodes)), column="proprio"
        )
        parts, attributes = partition(episodes, held_out=held_out, frameskip=frameskip), episodes.attributes
    model = load_published(folder, action_scaler=scaler, weights=weights, proprio_scaler=proprio_stats, encoder=encoder)
    metadata = _metadata(Path(folder), file, kind, task)
    return _save(model, kind, out, metadata, Path(data), attributes, parts.as_dict())


def convert_tokenizer(
    folder: Folder,
    out: Folder,
    *,
    task: str | None = None,
    weights: str | None = None,
    encoder: str | None = None,
    image_size: int | None = None,
) -> CompactTokenizer:
    """Write a published tokenizer of CompACT to `out` as a checkpoint of ours; the rest is as in `load_tokenizer`."""
    _check_apart(folder, out)
    made = load_tokenizer(folder, weights=weights, encoder=encoder, image_size=image_size)
    file = published_compact.find(Path(folder), weights)
    metadata = _metadata(Path(folder), Path(folder) if file is None else file, "nwm", task)
    made.save(Path(out), metadata | {"part": "tokenizer"})
    return made


def _check_apart(folder: Folder, out: Folder) -> None:
    if Path(out).resolve() == Path(folder).resolve():
        raise CheckpointError(f"{out} is the published folder itself, whose {CONFIG} would be lost; name another")


def _metadata(folder: Path, file: Path, kind: str, task: str | None) -> dict[str, Any]:
    return {
        "part": "model",
        **({} if task is None else {"task": task}),
        "model": kind,
        "scale": "published",
        "recipe": {"folder": folder.name, "weights": file.name},
    }


def _save(
    model: M, kind: str, out: Folder, metadata: dict[str, Any], data: Path, attributes: Mapping[str, Any], parts: Any
) -> M:
    about = metadata | {"data": {"file": data.name, **attributes}, "partition": parts}
    models.save(model, kind, Path(out), about)
    return model


def _proprio(given: Statistics, size: int, file: Path) -> ActionScaler:
    if given == "identity":
        return ActionScaler((0.0,) * size, (1.0,) * size)
    if given is None or given.size != size:
        got = "none" if given is None else f"those of {given.size}"
        raise CheckpointError(
            f"the model of {file} looks at {size} numbers of proprioception besides pixels and needs the statistics of "
            f"its dataset, got {got}: pass proprio_scaler=acid.data.fit_scaler(episodes, range(len(episodes)), "
            "column='proprio'), or 'identity' if you normalise them yourself"
        )
    return given


def _scaler(given: Statistics, size: int, folder: Folder) -> ActionScaler:
    if given is None:
        raise CheckpointError(
            f"{folder} holds no action statistics: pass those of the dataset that the model was trained on, "
            "action_scaler=acid.data.fit_scaler(episodes, range(len(episodes)), frameskip) with frameskip × action "
            f"size = {size}, or action_scaler='identity' if you normalise actions yourself"
        )
    if given == "identity":
        return ActionScaler((0.0,) * size, (1.0,) * size)
    if given.size != size:
        raise CheckpointError(
            f"the model of {folder} takes actions of {size} numbers, the scaler makes {given.size} "
            f"({given.env_size} × frameskip {given.frameskip}); it needs another frameskip or another dataset"
        )
    return given


def _frameskip(size: int, shape: tuple[int, ...], data: Folder) -> int:
    """Environment steps in one action of the model."""
    if len(shape) != 1 or size % shape[0]:
        raise DataError(f"the model takes {size} numbers, which is no whole number of the actions {shape} in {data}")
    return size // shape[0]


def _weights_file(folder: Path, name: str | None) -> Path:
    if name is not None:
        return _existing(folder, name)
    found = sorted(folder.glob(WEIGHTS))
    if not found and (archive := published_archive.find(folder)) is not None:
        return archive
    if not found:
        raise CheckpointError(f"{folder} has no {WEIGHTS}, so it is not a complete checkpoint")
    if len(found) > 1:
        raise CheckpointError(f"{folder} holds {some([file.name for file in found])}: choose one with weights=...")
    return found[0]


def _read_tensors(file: Path) -> dict[str, Tensor]:
    """A state dict, which Lightning may have wrapped."""
    content = load_torch(file, CheckpointError, remedy="fetch it again")
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = state_of(content)
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{file} must hold a state dict, tensors by name, and holds something else")
    return content


def _check_finite(tensors: dict[str, Tensor], file: Path) -> None:
    if broken := [str(name) for name, value in tensors.items() if not torch.isfinite(value).all()]:
        raise CheckpointError(f"{file} cannot be used: {some(broken)} hold NaN or infinite numbers")


def _existing(folder: Path, name: str) -> Path:
    if not folder.is_dir():
        raise CheckpointError(f"no published checkpoint at {folder}")
    if not (folder / name).exists():
        raise CheckpointError(f"{folder} has no {name}, so it is not a complete checkpoint")
    return existing(folder / name, CheckpointError)
