"""The most bytes that tensors hold at once."""

from __future__ import annotations

import torch

from acid.planning.memory import PeakMemory


def test_the_peak_counts_every_storage_while_it_lives_and_none_from_outside():
    given = torch.randn(1000)
    with PeakMemory() as memory:
        view = given.view(10, 100).t()  # nothing new
        first = view + 1  # 4000 bytes
        second = first * 2  # 8000
        del first
        total = second.sum()  # 4004
        del second
        torch.zeros(500)
    assert memory.peak == 8000
    assert total.isfinite()
