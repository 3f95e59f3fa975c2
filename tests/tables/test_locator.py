"""Frames are found where they were seen from; with a tokenizer and a distance that keep everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from acid.data.poses import displacements, integrate
from acid.tables.locator import Locator
from acid.tasks.navigation import Navigation

START = np.array([0.0, 0.0, 0.3])


class Faithful:
    """A tokenizer without loss."""

    def encode(self, frames: Tensor) -> Tensor:
        return frames.float() / 255

    def decode(self, latents: Tensor) -> Tensor:
        return latents


@pytest.fixture(scope="module")
def locator() -> Iterator[Locator]:
    kit: Any = SimpleNamespace(model=Faithful(), lpips=lambda a, b: (a - b).square().mean((1, 2, 3)))
    with closing(Navigation(size=48, worlds=1)) as task:
        yield Locator(kit, task, 0, torch.Generator().manual_seed(0))


def seen(locator: Locator, poses: np.ndarray) -> Tensor:
    return torch.from_numpy(np.stack([locator.task.render_pose(locator.world, pose) for pose in poses])) / 255


def test_a_frame_is_found_from_a_guess_that_is_off(locator: Locator) -> None:
    true, off = START, np.array([0.08, -0.04, 0.03])
    found = locator.locate(seen(locator, true[None])[0], true + off)
    assert np.linalg.norm(found - true) < 0.6 * np.linalg.norm(off)
    assert abs(found[2] - true[2]) < 0.015
    there, guessed, hit = seen(locator, np.stack([true, true + off, found]))
    assert (hit - there).square().mean() < 0.3 * (guessed - there).square().mean()


def test_frames_that_take_other_steps_than_asked_are_followed(locator: Locator) -> None:
    asked, taken = (np.tile(step, (4, 1)) for step in ([0.2, 0.0, 0.0], [0.2, 0.0, 0.04]))
    path = integrate(taken, START)
    found = locator.follow(seen(locator, path[1:]), START, asked)
    turned = displacements(np.concatenate([START[None], found]))[:, 2]
    np.testing.assert_allclose(turned, 0.04, atol=0.015)
    np.testing.assert_allclose(found[:, :2], path[1:, :2], atol=0.08)
