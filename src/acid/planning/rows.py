"""Which problems are still being searched."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """R of B problems. Their numbers are known on the host, so that no search has to ask the device for them."""

    numbers: tuple[int, ...]
    index: Tensor | None = None  # [R], the numbers on the device; None: all B problems, and nothing is gathered

    @classmethod
    def all(cls, problems: int) -> Rows:
        return cls(tuple(range(problems)))

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, values: Tensor) -> Tensor:
        """The rows [R, ...] of values [B, ...]."""
        return values if self.index is None else values[self.index]

    def put(self, values: Tensor, new: Tensor) -> Tensor:
        """Values [B, ...] with these rows replaced by new ones [R, ...]."""
        return new if self.index is None else values.index_copy(0, self.index, new)

    def where(self, keep: Tensor) -> Rows:
        """Those of these rows for which `keep` [R] holds; reading it waits for the device."""
        kept = keep.tolist()
        if all(kept):
            return self
        numbers = tuple(compress(self.numbers, kept))
        return Rows(numbers, torch.tensor(numbers, dtype=torch.long, device=keep.device))
