"""Checkpoints: `model.safetensors` with the weights and `config.json` with all the rest.

Nothing executable is ever read: the config names a kind that the caller's code knows how to build.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from acid.errors import AcidError, CheckpointError, did_you_mean, is_number, some
from acid.files import clipped, existing, load_safetensors, read_json_object, replacing, save_safetensors
from acid.nn.budget import building
from acid.types import ActionScaler

C = TypeVar("C")
M = TypeVar("M", bound=nn.Module)

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
_ENTRIES = ("kind", "config", "scaler", "metadata", "weights")
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder holds."""

    kind: str  # registry name of what the weights belong to
    config: dict[str, Any]
    state: dict[str, Tensor]
    scaler: ActionScaler | None
    metadata: dict[str, Any]

    @property
    def built_on(self) -> dict[str, str]:
        """The fingerprints of the parts that it was trained on, by name, where they were recorded."""
        found = self.metadata.get("built_on", {})
        if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
            raise CheckpointError(
                f"'built_on' of a {self.kind!r} checkpoint must hold fingerprints, got {clipped(found)}"
            )
        return found


def save(
    folder: str | os.PathLike[str],
    *,
    kind: str,
    config: Any,
    state: Mapping[str, Tensor] | nn.Module,
    scaler: ActionScaler | None = None,
    metadata: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a checkpoint; whoever loads it meanwhile finds the old one, the new one or an error, never a mixture.

    `config` is a dataclass or a mapping of JSON values. `dtype` stores floating-point weights in fewer bits; they load
    as float32 again.
    """
    target = Path(folder)
    stored = _storable(state, dtype)
    _check_finite(stored, f"{target} was not written: its")
    config_file, weights_file = (replacing(target / name, CheckpointError) for name in (CONFIG, WEIGHTS))
    with config_file as description, weights_file as weights:
        save_safetensors(weights, stored)
        content = {
            "kind": kind,
            "config": _plain(config),
            "scaler": None if scaler is None else _plain(scaler),
            "metadata": dict(metadata or {}),
            "weights": _digest(weights),  # ties the two files together
        }
        description.write_text(_to_json(content, target), encoding="utf-8")


def annotate(folder: str | os.PathLike[str], **metadata: Any) -> None:
    """Add to what is known about a checkpoint, or correct it. It stays the same one: see `fingerprint`."""
    source = Path(folder)
    content = _read_config(source)
    content["metadata"] = {**content["metadata"], **metadata}
    with replacing(source / CONFIG, CheckpointError) as description:
        description.write_text(_to_json(content, source), encoding="utf-8")


def load(folder: str | os.PathLike[str], kind: str | None = None) -> Checkpoint:
    """Read a checkpoint, and make sure that it is of this kind when one is named."""
    source = Path(folder)
    content = _read_config(source)
    if kind is not None and content["kind"] != kind:
        raise CheckpointError(f"{source} holds a {content['kind']!r} checkpoint, not a {kind!r} one")
    weights = _existing(source, WEIGHTS)
    state = load_safetensors(weights, CheckpointError)
    if _digest(weights) != content["weights"]:
        raise CheckpointError(
            f"{weights} and {CONFIG} beside it are from different checkpoints; save or fetch it again"
        )
    _check_finite(state, f"{weights} cannot be used: its")
    return Checkpoint(
        kind=content["kind"],
        config=content["config"],
        state={name: value.float() if value.dtype in _HALF else value for name, value in state.items()},
        scaler=None if content["scaler"] is None else _read_scaler(content["scaler"], source),
        metadata=content["metadata"],
    )


def restore(checkpoint: Checkpoint, build: Callable[[], M], where: str | os.PathLike[str]) -> M:
    """The network that `build` makes of the configuration, with the weights, frozen for inference.

    A configuration that asks for much more than its weights is refused before memory is taken.
    """
    with building(where, checkpoint.state.values(), CheckpointError):
        module = build()
        load_state(module, checkpoint)
    return module.eval().requires_grad_(False)


def load_state(module: nn.Module, checkpoint: Checkpoint) -> None:
    """Put the checkpoint's weights into a module that must have exactly the same tensors."""
    wanted, found = module.state_dict(), checkpoint.state
    wrong = [name for name in wanted if name in found and wanted[name].shape != found[name].shape]
    problems = [
        ("lack", [name for name in wanted if name not in found]),
        ("have the unexpected", sorted(name for name in found if name not in wanted)),
        ("differ in shape at", [f"{n} {list(found[n].shape)} instead of {list(wanted[n].shape)}" for n in wrong]),
    ]
    told = [f"{verb} {some(names)}" for verb, names in problems if names]
    if told:
        raise CheckpointError(
            f"the weights of this {checkpoint.kind!r} checkpoint do not fit {type(module).__name__}: "
            f"they {' and '.join(told)}"
        )
    module.load_state_dict(found)


def fingerprint(folder: str | os.PathLike[str]) -> str:
    """Twelve hexadecimal digits that change with the weights, the configuration or the action statistics.

    Metadata do not count: what is known about a checkpoint may grow without making it another one.
    """
    return _identity(_read_config(Path(folder)))[:12]


def config_from(cls: type[C], mapping: Mapping[str, Any]) -> C:
    """Build a (nested) dataclass from JSON values; unknown keys, missing keys and wrong types are refused."""
    return _build(cls, mapping, cls.__name__)


def _build(cls: Any, mapping: Any, where: str) -> Any:
    if not isinstance(mapping, Mapping):
        raise CheckpointError(f"{where} must be an object with named values, got {mapping!r}")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for name in mapping:
        if name not in fields:
            raise CheckpointError(f"{where} has no setting {name!r}{did_you_mean(name, fields)}")
    absent = [name for name, field in fields.items() if name not in mapping and _is_required(field)]
    if absent:
        raise CheckpointError(f"{where} lacks the setting {some(absent)}")
    hints = get_type_hints(cls)
    return cls(**{name: _convert(hints[name], value, f"{where}.{name}") for name, value in mapping.items()})


def _convert(kind: Any, value: Any, where: str) -> Any:
    """A JSON value as the annotated type: lists become tuples, objects become dataclasses."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _convert_union(arguments, value, where)
    if dataclasses.is_dataclass(kind):
        return _build(kind, value, where)
    if origin is tuple and isinstance(value, list | tuple):
        items = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(items) == len(value):
            return tuple(
                _convert(item, v, f"{where}[{i}]") for i, (item, v) in enumerate(zip(items, value, strict=True))
            )
    elif origin is Literal:
        if value in arguments:
            return value
    elif kind is float and isinstance(value, int) and not isinstance(value, bool):
        if is_number(value):  # some whole numbers of a file are too large for one
            return float(value)
    elif kind is Any or (isinstance(value, origin or kind) and (kind is bool or not isinstance(value, bool))):
        return value
    raise CheckpointError(
        f"{where} must be {getattr(kind, '__name__', kind) if origin is None else kind}, got {value!r}"
    )


def _convert_union(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in options:
        return None
    failure: CheckpointError | None = None
    for option in options:
        if option is not type(None):
            try:
                return _convert(option, value, where)
            except CheckpointError as error:
                failure = error
    raise failure or CheckpointError(f"{where} must be null, got {value!r}")


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _read_config(folder: Path) -> dict[str, Any]:
    path = _existing(folder, CONFIG)
    content = read_json_object(path, CheckpointError, remedy="fetch or train the checkpoint again")
    absent = [name for name in _ENTRIES if name not in content]
    if absent:
        raise CheckpointError(f"{path} lacks {some(absent)}, so this is not a checkpoint of ours")
    for name in ("config", "metadata"):
        if not isinstance(content[name], dict):
            raise CheckpointError(f"{path} must hold an object under {name!r}, got {clipped(content[name])}")
    for name in ("kind", "weights"):
        if not isinstance(content[name], str):
            raise CheckpointError(f"{path} must hold a text under {name!r}, got {clipped(content[name])}")
    if content.get("digest", _identity(content)) != _identity(content):  # the first checkpoints have none
        raise CheckpointError(
            f"{path} was changed after it was written: its kind, config, scaler or weights are not those of its "
            "digest; save or fetch the checkpoint again"
        )
    return content


def _identity(content: Mapping[str, Any]) -> str:
    """A digest of all that decides what a checkpoint does."""
    identity = {name: content[name] for name in ("kind", "config", "scaler", "weights")}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _read_scaler(values: Any, folder: Path) -> ActionScaler:
    try:
        if isinstance(values, dict) and set(values) != {"mean", "std", "frameskip"}:
            raise CheckpointError(f"it needs mean, std and frameskip, got {sorted(values)}")
        return config_from(ActionScaler, values)
    except AcidError as error:
        raise CheckpointError(f"the action statistics in {folder / CONFIG} are unusable: {error}") from error


def _existing(folder: Path, name: str) -> Path:
    if not folder.is_dir():
        raise CheckpointError(f"no checkpoint folder at {folder}")
    if not (folder / name).exists():
        raise CheckpointError(f"{folder} has no {name}, so it is not a complete checkpoint")
    return existing(folder / name, CheckpointError)


def _check_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    broken = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise CheckpointError(f"{what} weights {some(broken)} hold NaN or infinite numbers")


def _storable(state: Mapping[str, Tensor] | nn.Module, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Contiguous CPU copies, none sharing memory, in the dtype asked for."""
    tensors = state.state_dict() if isinstance(state, nn.Module) else state
    return {
        name: value.detach().to("cpu", dtype if value.is_floating_point() else None).contiguous().clone()
        for name, value in tensors.items()
    }


def _plain(config: Any) -> dict[str, Any]:
    return dict(config) if isinstance(config, Mapping) else dataclasses.asdict(config)


def _to_json(content: Mapping[str, Any], folder: Path) -> str:
    try:
        content = json.loads(json.dumps(content))  # as it will be read
        return json.dumps({**content, "digest": _identity(content)}, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"config and metadata of {folder} must be JSON values: {error}") from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
