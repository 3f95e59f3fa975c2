"""Small episodes whose every value tells where it came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from acid.data import EpisodeWriter

LENGTHS = (12, 3, 20, 7, 16)


def episode(number: int, length: int) -> dict[str, np.ndarray]:
    """Pixels, actions and state that encode (episode, step)."""
    steps = np.arange(length)
    pixels = np.zeros((length, 6, 6, 3), dtype=np.uint8)
    pixels[..., 0], pixels[..., 1] = number, steps[:, None, None]
    action = np.stack([np.full(length, number), steps], axis=1).astype(np.float32)
    return {"pixels": pixels, "action": action, "state": np.stack([steps * 0.1, steps + number], axis=1)}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write episodes of the given lengths to a file and return its path."""

    def run(lengths: Sequence[int] = LENGTHS, name: str = "data.h5", first: int = 0) -> Path:
        path = tmp_path / name
        with EpisodeWriter(path, attributes={"task": "toy"}) as writer:
            for number, length in enumerate(lengths):
                writer.write(episode(first + number, length))
        return path

    return run
