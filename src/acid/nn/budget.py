"""Stops a network that is about to become absurdly large, and says in one sentence why one cannot be built."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from acid.errors import AcidError, ShapeError
from acid.files import Failure, reason

_BESIDES = 2**27  # numbers besides the weights: frozen encoders, starting values, tables
_TENSORS = 50  # made per stored tensor, e.g. starting values
_OTHER_TENSORS = 20_000
_RAW = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


@contextmanager
def building(
    what: str | os.PathLike[str], weights: Collection[Tensor] | None = None, failure: Failure = ShapeError
) -> Iterator[None]:
    """`with building("the verifier"):` make a network of a configuration, which is a few numbers that somebody wrote.

    One of 10^12 would fill the memory, or build layers for ever. So the network may become about as large as the
    weights that it is for, or as the machine's memory; whatever torch says against a configuration is made a sentence.
    """
    try:
        with _Budget(weights):
            yield
    except AcidError as error:
        raise failure(f"{what} cannot be used: {error}") from error
    except _RAW as error:
        raise failure(f"{what} describes a network that cannot be built ({reason(error)})") from error


class _Budget(TorchDispatchMode):
    """Whatever makes tensors is asked first how large they will be."""

    def __init__(self, weights: Collection[Tensor] | None) -> None:
        super().__init__()
        if weights is None:
            self._numbers, self._tensors, self._most = _memory() // 4, _OTHER_TENSORS, "this machine's memory holds"
        else:
            self._numbers = 3 * sum(weight.numel() for weight in weights) + _BESIDES
            self._tensors, self._most = _TENSORS * len(weights) + _OTHER_TENSORS, "its weights are"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wanted = args[0] if args else None
        if isinstance(wanted, list | tuple) and all(isinstance(size, int) for size in wanted):
            self._numbers -= math.prod(wanted)
            self._tensors -= 1
            if self._numbers < 0 or self._tensors < 0:
                raise ShapeError(f"its configuration asks for more than {self._most}, tensors of {list(wanted)}")
        return func(*args, **(kwargs or {}))


def _memory() -> int:
    """Bytes of this machine, or so many as small machines have where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 * 1024**3
