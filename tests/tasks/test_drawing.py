"""Soft-edged drawing: shapes cover as many pixels as their area says, wherever they are."""

import numpy as np
import pytest

from acid.tasks.drawing import Canvas, disc, rectangle

BLACK, WHOLE = (0.0, 0.0, 0.0), (0.0, 0.0, 100.0, 100.0)


def covered(distance, box=WHOLE, margin=0.0, size=50):
    """The area in world units that a black shape takes of a white world of 100 by 100."""
    canvas = Canvas(size=size, world=100.0)
    canvas.paint(distance, [(margin, BLACK)], box)
    return float((1 - canvas.pixels[..., 0] / 255).sum()) * (100 / size) ** 2


@pytest.mark.parametrize("offset", [0.0, 0.3, 1.1])
@pytest.mark.parametrize("angle", [0.0, 0.4, 2.0])
def test_area_is_kept_under_shifts_and_turns(offset, angle):
    block = rectangle(50 + offset, 50 - offset, angle, (-20.0, -5.0), (20.0, 5.0))
    assert covered(block) == pytest.approx(400, rel=0.03)
    assert covered(disc(50 + offset, 50, 12.0)) == pytest.approx(np.pi * 144, rel=0.03)


def test_margins_grow_and_shrink():
    block = rectangle(50, 50, 0, (-20.0, -10.0), (20.0, 10.0))
    assert covered(block, margin=2) == pytest.approx(44 * 24, rel=0.01)
    assert covered(block, margin=-2) == pytest.approx(36 * 16, rel=0.01)


def test_the_box_of_a_shape_is_enough_and_one_outside_is_nothing():
    shape = disc(30.3, 61.7, 9.0)
    assert covered(shape, box=(21.3, 52.7, 39.3, 70.7)) == covered(shape)
    assert covered(disc(-50, 300, 9.0), box=(-59, 291, -41, 309)) == 0
    assert covered(disc(0, 100, 10.0), box=(-10, 90, 10, 110)) == pytest.approx(np.pi * 25, rel=0.05)  # a quarter


def test_a_copy_does_not_touch_the_original():
    canvas = Canvas(size=10, world=10.0)
    twin = canvas.copy()
    twin.paint(disc(5, 5, 3), [(0, BLACK)], (0, 0, 10, 10))
    assert (canvas.image() == 255).all()
    assert twin.image()[5, 5].tolist() == [0, 0, 0]
