"""What published files hold, before it is converted: weights by their published names, and settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from acid.errors import AcidError, CheckpointError, some
from acid.files import reason

P = TypeVar("P")


class Content(NamedTuple):
    """What a file holds."""

    state: dict[str, Tensor]
    settings: Mapping[str, Any]  # the configuration of its training
    is_tokenizer: bool

    def setting(self, path: str, default: Any) -> Any:
        """What the file's configuration says, if it is there and of the default's kind."""
        value: Any = self.settings
        for name in path.split("."):
            value = mapping(value).get(name)
        if value is None:
            return default
        kinds = {bool: bool, int: int, float: int | float, tuple: list | tuple, str: str, dict: Mapping}
        kind = kinds.get(type(default), int | float)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise CheckpointError(f"its configuration says {path} = {value!r}, which is not a value of that setting")
        return value


class Converted(NamedTuple):
    """A configuration, and weights by the names of our network."""

    config: Any
    state: dict[str, Tensor]


class Weights:
    """Weights by their published names, each of which must be taken once."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self.left = dict(state)

    def take(self, name: str, dimensions: int | None = None) -> Tensor:
        value = self.left.pop(name)
        if dimensions is not None and value.dim() != dimensions:
            raise CheckpointError(f"{name} has the shape {list(value.shape)}, not one of {dimensions} dimensions")
        return value

    def linear(self, theirs: str, ours: str) -> Iterator[tuple[str, Tensor]]:
        for kind, dimensions in (("weight", 2), ("bias", 1)):
            yield f"{ours}.{kind}", self.take(f"{theirs}.{kind}", dimensions)

    def under(self, prefix: str) -> dict[str, Tensor]:
        """All that begin so, by the rest of their names."""
        found = [name for name in self.left if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.left.pop(name) for name in found}

    def depth(self, pattern: str) -> int:
        numbers = {int(found[1]) for name in self.left if (found := re.match(pattern + r"\.(\d+)\.", name))}
        if numbers != set(range(len(numbers))) or not numbers:
            raise CheckpointError(f"its {pattern} are numbered {sorted(numbers)}, which are not all from 0 on")
        return len(numbers)

    def finish(self) -> None:
        if self.left:
            raise CheckpointError(f"its weights have {some(sorted(self.left))}, which ours has not")


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def guarded(file: Path, make: Callable[[], P]) -> P:
    """What is made of a file; a CheckpointError that names the file says why it cannot be."""
    try:
        return make()
    except AcidError as error:
        raise CheckpointError(f"{file} cannot be converted: {error}") from error
    except KeyError as error:
        raise CheckpointError(f"{file} cannot be converted: its weights lack {error}") from error
    except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be converted: a weight has an absurd shape ({reason(error)})") from error
