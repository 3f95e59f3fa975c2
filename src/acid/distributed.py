"""Training by several processes, as torchrun starts them: each has a share of every batch.

While they train together, statistics are those of the whole batch, and gradients flow through them to every process.
So the number of processes is not part of a recipe: it changes a run only by rounding. Alone, nothing here does a thing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acid.errors import AcidError

T = TypeVar("T")
PATIENCE = timedelta(days=1)  # the first process may encode a dataset while the others wait; torchrun notices the dead
_training_together = False


@contextmanager
def group(device: torch.device) -> Iterator[torch.device]:
    """Join the processes that torchrun started, if it did; the device of this one (each has a GPU of its own)."""
    own = torch.device("cuda", _local_rank()) if _started() and device == torch.device("cuda") else device
    if dist.is_initialized() or not _started():
        yield own
        return
    if own.type == "cuda":
        torch.cuda.set_device(own)
    dist.init_process_group("nccl" if own.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield own
    finally:
        dist.destroy_process_group()


def check_joined() -> None:
    """An AcidError in a process that torchrun started with others and that would train by itself."""
    if _started() and not dist.is_initialized():
        raise AcidError("torchrun started several processes: train inside `with acid.distributed.group(device):`")


@contextmanager
def together() -> Iterator[None]:
    """Inside, statistics are of the whole batch and `share` gives this process's part of it."""
    global _training_together
    before, _training_together = _training_together, dist.is_initialized() and dist.get_world_size() > 1
    try:
        yield
    finally:
        _training_together = before


def processes() -> int:
    """How many train together at this moment."""
    return dist.get_world_size() if _training_together else 1


def first() -> bool:
    """Whether this is the process that writes files and shows progress."""
    return not dist.is_initialized() or dist.get_rank() == 0


@contextmanager
def in_turn() -> Iterator[None]:
    """The first process goes first, then one of every other machine, then the rest: each finds what was cached."""
    turn = 0 if first() else 1 if _local_rank() == 0 else 2
    for _ in range(turn):
        wait()
    yield
    for _ in range(turn, 3):
        wait()


def wait() -> None:
    """Until every process is here."""
    if dist.is_initialized():
        dist.barrier()


def share(rows: T) -> T:
    """This process's part of what has one entry per example of a batch: an array, a tensor or a range."""
    count = processes()
    if count == 1:
        return rows
    size = len(rows)  # type: ignore[arg-type]
    if size % count:
        raise AcidError(
            f"a batch of {size} cannot be shared equally by {count} processes; choose a multiple of {count}"
        )
    own = size // count
    return rows[dist.get_rank() * own :][:own]  # type: ignore[index]


def seed(shared: int) -> int:
    """A seed of this process's own; the first one's is that of a process that trains alone."""
    return shared if processes() == 1 else (shared + dist.get_rank() * 2**48) % 2**63


def mean(values: Tensor) -> Tensor:
    """The mean over the processes, to which every process's gradient flows back."""
    count = processes()
    return values if count == 1 else _Sum.apply(values) / count  # type: ignore[no-any-return]


def means(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Numbers by name as means over the processes, without gradients, in one go."""
    if processes() == 1:
        return {name: value.detach() for name, value in values.items()}
    together = torch.stack([value.detach().float() for value in values.values()])
    return dict(zip(values, mean(together).unbind(), strict=True))


def variance(samples: Tensor, dim: int) -> Tensor:
    """The unbiased variance along a dimension of which every process has a part."""
    count = processes()
    if count == 1:
        return samples.var(dim)
    squares = (samples - mean(samples.mean(dim, keepdim=True))).square()
    return mean(squares.mean(dim)) / (1 - 1 / (samples.shape[dim] * count))


def of_first(values: Tensor) -> Tensor:
    """What the first process has, e.g. random numbers that must be the same everywhere."""
    if processes() > 1:
        dist.broadcast(values, 0)
    return values


def told_by_first(make: Callable[[], T]) -> T:
    """What the first process makes, in every process."""
    if not dist.is_initialized():
        return make()
    told: list[Any] = [make() if first() else None]
    dist.broadcast_object_list(told, 0)
    return told[0]


def anywhere(happened: bool, device: torch.device) -> bool:
    """Whether it happened to any of the processes."""
    if processes() == 1:
        return happened
    found = torch.tensor(int(happened), device=device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return bool(found)


def check_norms(module: nn.Module) -> None:
    """An AcidError if a layer would normalise by the share of one process."""
    for name, layer in module.named_modules():
        own = isinstance(layer, _BatchNorm) and not isinstance(layer, nn.SyncBatchNorm)
        if processes() > 1 and own and not getattr(layer, "of_whole_batch", False):
            raise AcidError(
                f"the layer {name!r} is a {type(layer).__name__}, which would normalise by one process's part of a "
                "batch; take the one in acid.nn.batch_norm"
            )


class _Sum(torch.autograd.Function):
    """Over the processes, forward and backward: each one's values are part of every one's sum."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _Sum.forward(ctx, gradients[0])


def _started() -> bool:
    """Whether torchrun started this process together with others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "MASTER_ADDR" in os.environ


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))
