"""Stops a network that is about to become much larger than the weights it is built for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from acid.errors import CheckpointError

_BESIDES = 2**27  # numbers besides the weights: frozen encoders, starting values, tables
_TENSORS = 50  # made per stored tensor, e.g. starting values
_OTHER_TENSORS = 20_000


class Budget(TorchDispatchMode):
    """`with Budget(weights):` whatever makes tensors is asked first how large they will be.

    A configuration is a few numbers in a file. One of 10^12 would fill the memory, or build layers for ever.
    """

    def __init__(self, weights: Iterable[Tensor]) -> None:
        super().__init__()
        sizes = [weight.numel() for weight in weights]
        self._numbers = 3 * sum(sizes) + _BESIDES
        self._tensors = _TENSORS * len(sizes) + _OTHER_TENSORS

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wanted = args[0] if args else None
        if isinstance(wanted, list | tuple) and all(isinstance(size, int) for size in wanted):
            self._numbers -= math.prod(wanted)
            self._tensors -= 1
            if self._numbers < 0 or self._tensors < 0:
                raise CheckpointError(
                    f"its configuration asks for far more than its weights, tensors of {list(wanted)}"
                )
        return func(*args, **(kwargs or {}))
