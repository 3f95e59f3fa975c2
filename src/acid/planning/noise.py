"""Random numbers: one stream per problem, so that a plan does not depend on what else is in its batch."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from acid.errors import PlanningError, ShapeError
from acid.planning.rows import Rows

MOST_NUMBERS = 2**31  # drawn at once, 8 GiB; what is imagined for them takes many times as much


def derive_seed(seed: int, *path: int) -> int:
    """A seed of its own for each path (problem index, replanning index, ...) under one seed."""
    return int(np.random.SeedSequence([_checked(seed), *path]).generate_state(1, np.uint32)[0])


class Streams:
    """B random streams. Those of the CPU give the same numbers whatever the device of the model."""

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.seeds = tuple(seeds)
        self._device = device
        self._generators = [torch.Generator(device).manual_seed(_checked(seed)) for seed in seeds]

    @classmethod
    def of(cls, seed: int | Sequence[int], size: int, device: torch.device | str = "cpu") -> Streams:
        """An int s gives problem b the seed derived from (s, b); a sequence gives problem b exactly seed[b]."""
        if not isinstance(seed, Sequence):
            return cls([derive_seed(seed, problem) for problem in range(size)], device)
        if len(seed) != size:
            raise ShapeError(f"need one seed per problem: {size} problems, {len(seed)} seeds")
        return cls(seed, device)

    def normal(self, rows: Rows, shape: Sequence[int], like: Tensor) -> Tensor:
        """Standard normal numbers [R, *shape], each row from the stream of that problem."""
        if (wanted := len(rows) * math.prod(shape)) > MOST_NUMBERS:
            raise PlanningError(
                f"{len(rows)} problems × candidates of {list(shape)} numbers are {wanted:.1e} in one iteration, which "
                f"no memory holds: lower the samples, the horizon or the number of problems"
            )
        draws = [
            torch.randn(*shape, generator=self._generators[row], dtype=like.dtype, device=self._device)
            for row in rows.numbers
        ]
        return torch.stack(draws).to(like.device, non_blocking=like.is_cuda)


def colour(white: Tensor, exponent: float) -> Tensor:
    """White noise [..., H, A] to noise with power spectrum 1/f^exponent over H and still unit variance everywhere."""
    steps = white.shape[-2]
    # Frequency 0 would get infinite power: give it that of the slowest wave that fits the horizon.
    frequencies = torch.fft.fftfreq(steps, dtype=white.dtype, device=white.device).abs().clamp(min=1 / steps)
    gains = frequencies ** (-exponent / 2)
    gains = gains / gains.square().mean().sqrt()
    spectrum = torch.fft.rfft(white, dim=-2) * gains[: steps // 2 + 1, None]
    return torch.fft.irfft(spectrum, n=steps, dim=-2)


def _checked(seed: int) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        raise PlanningError(f"a seed must be an integer, got {seed!r}") from None
    if not 0 <= number < 2**63:
        raise PlanningError(f"a seed must be between 0 and 2**63 - 1, got {number}")
    return number
