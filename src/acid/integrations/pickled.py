"""Weights in files of torch that hold more than weights: whole modules, optimisers, the state of a Lightning trainer.

Such files are pickles, which may run anything when they are opened. Here they are read by an unpickler that builds
tensors and plain containers only. An object of a class whose name is known becomes an empty shell that keeps what the
file says it holds; the class itself is never imported, and nothing of it runs. Any other name is refused.
"""

from __future__ import annotations

import collections
import math
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._utils import _rebuild_tensor_v2

from acid.errors import CheckpointError
from acid.files import check_archive, existing

_DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_STORAGES = {
    **{f"{kind}Storage": getattr(torch, kind.lower()) for kind in ("Float", "Double", "Half", "Long", "Int", "Short")},
    **{"BFloat16Storage": torch.bfloat16, "CharStorage": torch.int8},
    **{"ByteStorage": torch.uint8, "BoolStorage": torch.bool},
}


MOST_MODULES = 100_000  # in one file


class _Builder:
    """A function that a file may call. A file may also set attributes of what it names, which this refuses."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "_function", function)

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        raise CheckpointError(f"asks to change {name}")


def _tensor(storage: Any, offset: int, size: Sequence[int], stride: Sequence[int], *rest: Any) -> Tensor:
    """Only of numbers that are in the file: torch would make room for any others."""
    room = storage._untyped_storage.nbytes() // storage.dtype.itemsize
    end = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1
    if min((offset, *size, *stride)) < 0 or max(math.prod(size), end if all(size) else 0) > room:
        raise CheckpointError(f"claims a tensor of {list(size)} in {room} numbers")
    return _rebuild_tensor_v2(storage, offset, size, stride, *rest)


# What is really called while a tensor is built; all of them make data only.
_BUILDERS: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch", "Size"): torch.Size,
    ("torch", "device"): torch.device,
    ("torch._utils", "_rebuild_tensor_v2"): _Builder(_tensor),
    ("torch._utils", "_rebuild_parameter"): _Builder(lambda data, *_: data),
    **{
        (module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (set, frozenset, dict, list)
    },
    **{("torch", name): dtype for name, dtype in _DTYPES.items()},
}
# Names of classes that become shells: networks, and what their training leaves beside them.
_SHELLS = re.compile(
    r"""(torch\.nn\.modules\.|torch\.nn\.parameter\.|torch\.optim\.|torch\.nn\.functional\.|torch\.ao\.|torch\._C\.
    |models?\.|module\.|jepa\.|wm\.|stable_worldmodel\.|stable_pretraining\.|dinov2\.|timm\.|transformers\.
    |einops\.|lightning\.|pytorch_lightning\.|omegaconf\.|argparse\.Namespace|pathlib\.|functools\.partial
    |typing\.Any|collections\.defaultdict|numpy\.|accelerate\.)""",
    re.VERBOSE,
)


class Shell:
    """What a file says about an object: `name` of its class, and what it held. It can do nothing."""

    name = ""
    dump_patches = False  # asked of modules in files of the older kind

    def __new__(cls, *args: Any, **_: Any) -> Shell:
        made = super().__new__(cls)
        made.held = args
        return made

    def __init__(self, *args: Any, **_: Any) -> None:
        pass

    held: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.held = state

    # Pickles may fill objects as if they were lists or dictionaries.
    def append(self, item: Any) -> None:
        pass

    def extend(self, items: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute that the object had."""
        return self.held.get(name, default) if isinstance(self.held, Mapping) else default


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _BUILDERS.get((module, name))
        if found is not None:
            return found
        if module == "torch" and name in _STORAGES:
            return SimpleNamespace(dtype=_STORAGES[name])  # all that torch asks of it; the class could make room
        full = f"{module}.{name}"
        if _SHELLS.match(full):
            return type("Shell", (Shell,), {"name": full})
        raise CheckpointError(f"asks to import {full}")


def _loads(file: Any, **options: Any) -> Any:
    return _Unpickler(file, **options).load()


_PICKLE = SimpleNamespace(
    __name__="restricted", Unpickler=_Unpickler, load=_loads, UnpicklingError=pickle.UnpicklingError
)


def read_pickled(file: Path) -> Any:
    """The content of a torch file: tensors, containers and shells; a CheckpointError for anything else."""
    existing(file, CheckpointError)
    archive = check_archive(file, CheckpointError, sums=True, remedy="fetch it again")
    try:  # of an archive only what is used comes into memory: some hold an optimiser four times as large as the weights
        return torch.load(file, map_location="cpu", weights_only=False, pickle_module=_PICKLE, mmap=archive)
    except CheckpointError as error:
        raise CheckpointError(f"{file} {error} and was not opened") from error
    except Exception as error:  # whatever a damaged file makes of pickle and torch
        raise CheckpointError(f"{file} is truncated, damaged or no file of torch; fetch it again") from error


def state_of(content: Any) -> dict[str, Tensor]:
    """The weights in what a file holds: a state dict, one wrapped by Lightning, or those of a shell of a module.

    Prefixes that wrappers add to every name (`model.`, `module.`, `_orig_mod.`) are taken away.
    """
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    tensors = dict(_tensors(content)) if isinstance(content, Shell) else _plain(content)
    prefixes = ("model.", "module.", "_orig_mod.", "world_model.")
    while tensors:
        prefix = next((p for p in prefixes if all(name.startswith(p) for name in tensors)), None)
        if prefix is None:
            return tensors
        tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    return tensors


def shells(content: Any) -> Iterator[Shell]:
    """A shell of a module and all those below it."""
    return (shell for _, shell in _walk(content))


def _walk(content: Shell) -> Iterator[tuple[str, Shell]]:
    """A shell and all those below it, each with the start of its names; not for ever, if one is inside itself."""
    waiting = [("", content)]
    for _ in range(MOST_MODULES):
        if not waiting:
            return
        prefix, shell = waiting.pop()
        yield prefix, shell
        parts = shell.get("_modules")
        below = parts.items() if isinstance(parts, Mapping) else ()
        waiting += [(f"{prefix}{name}.", part) for name, part in reversed(list(below)) if isinstance(part, Shell)]
    raise CheckpointError(f"a module in the file has more than {MOST_MODULES} parts, or is a part of itself")


def _plain(content: Any) -> dict[str, Tensor]:
    if not isinstance(content, Mapping):
        return {}
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}


def _tensors(content: Shell) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers of a module, by the names of its state dict."""
    for prefix, shell in _walk(content):
        for kind in ("_parameters", "_buffers"):
            own = shell.get(kind)
            for name, value in own.items() if isinstance(own, Mapping) else ():
                if isinstance(value, Tensor):
                    yield f"{prefix}{name}", value
