"""How much memory a function takes, and how many candidates fit into what there is."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from acid.errors import PlanningError


class PeakMemory(TorchDispatchMode):
    """`with PeakMemory() as memory:` then `memory.peak` is the most bytes that tensors made inside held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._held = 0
        self._known: set[int] = set()  # storages that were there before, or are counted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for storage in _storages((args, kwargs)):
            self._known.add(id(storage))
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if id(storage) not in self._known:
                self._known.add(id(storage))
                self._held += storage.nbytes()
                weakref.finalize(storage, self._forget, id(storage), storage.nbytes())
        self.peak = max(self.peak, self._held)
        return result

    def _forget(self, storage: int, size: int) -> None:
        self._known.discard(storage)
        self._held -= size


def fitting(judge: Callable[[int], object], problems: int, most: int) -> int:
    """How many candidates (B·N) may be judged at once in `most` bytes.

    judge: imagines and judges so many candidates of each of B problems. One of them is tried, and two if they fit for
    sure; memory grows by the same for each further one.
    """
    one = _peak(judge, 1)
    if one > most:
        raise PlanningError(
            f"one candidate for each of {problems} problem(s) takes {one / 1e6:.0f} MB, max_memory is {most / 1e6:.0f} "
            "MB: allow more, or plan for fewer problems at once"
        )
    if 2 * one > most:
        return problems
    return problems * (1 + (most - one) // max(_peak(judge, 2) - one, 1))


def _peak(judge: Callable[[int], object], count: int) -> int:
    with PeakMemory() as memory:
        judge(count)
    return memory.peak


def _storages(tree: Any) -> list[Any]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
