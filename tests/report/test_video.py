from __future__ import annotations

import imageio.v2 as imageio
import numpy as np
import pytest

from acid.errors import AcidError, ShapeError
from acid.report import Clip, side_by_side


def film(count: int, *, height: int = 17, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (count, height, 17, 3), dtype=np.uint8)


@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_the_video_is_as_long_as_its_longest_panel(tmp_path, ending):
    path = tmp_path / "new" / f"film.{ending}"
    panels = [Clip("original", film(6), "executed", [f"{i}" for i in range(6)]), Clip("goal", film(1))]
    assert side_by_side(path, panels, scale=3) == 6
    frames = imageio.mimread(path)
    assert len(frames) == 6
    height, width = frames[0].shape[:2]
    assert width > 2 * 17 * 3
    assert height > 17 * 3
    assert height % 2 == width % 2 == 0  # codecs refuse odd sides; 17 is odd on purpose


def test_no_text_reaches_into_another_or_past_the_edge(tmp_path):
    told = "The same start, the same goal and the same world model. " * 3
    panels = [Clip("proposal-acid", film(1), "imagines", ["step 25: error 1.58 tolerances"]) for _ in range(3)]
    side_by_side(tmp_path / "film.gif", panels, scale=3, heading=told)
    frame = np.asarray(imageio.mimread(tmp_path / "film.gif")[0])[..., :3]
    height, width = frame.shape[:2]
    blank = (frame == frame[0, 0]).all(-1)
    assert blank[:, :10].all()
    assert blank[:, -10:].all()
    panel = (width - 2 * 12 - 2 * 8) // 3  # without margins and gaps
    for number in (1, 2):
        gap = 12 + number * (panel + 8) - 8
        assert blank[-85:, gap + 1 : gap + 6].all()
    assert not blank[12:30].all()  # the heading
    assert height > 17 * 3 + 2 * 22 + 3 * 22


@pytest.mark.parametrize(
    ("name", "panels", "error", "message"),
    [
        ("film.avi", [Clip("acid", film(2))], AcidError, "film.avi"),
        ("film.gif", [], ShapeError, "at least one panel"),
        ("film.gif", [Clip("acid", film(2)), Clip("goal", film(1, height=9))], ShapeError, "one height"),
        ("film.gif", [Clip("acid", film(2), notes=["x"])], ShapeError, "1 notes for 2 frames"),
        ("film.gif", [Clip("acid", film(2) / 255)], ShapeError, "'acid' must be uint8"),
    ],
)
def test_bad_videos_are_refused(tmp_path, name, panels, error, message):
    with pytest.raises(error, match=message):
        side_by_side(tmp_path / name, panels)
