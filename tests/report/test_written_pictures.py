"""Pictures, figures, films and reels are written whole or refused with one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from acid.errors import AcidError
from acid.report import Clip, SheetRow, sheet, side_by_side
from acid.report.reel import Reel, Track
from acid.report.style import drawing

FRAMES = np.zeros((2, 8, 8, 3), np.uint8)


def draw_sheet(path: Path) -> None:
    sheet(path, [SheetRow("original", "executed", FRAMES)])


def draw_figure(path: Path) -> None:
    with drawing(path, width=1, height=1):
        pass


def film(path: Path) -> None:
    side_by_side(path, [Clip("original", FRAMES)])


def reel(path: Path) -> None:
    Reel("a", "b", [Track("a", "executed", "red", FRAMES, [0, 1])], [], "cost").save(path)


WRITERS = {"a.png": draw_sheet, "b.pdf": draw_figure, "c.mp4": film, "d.gif": film, "e.npz": reel}


@pytest.mark.parametrize("name", WRITERS)
def test_they_are_written_into_a_new_folder_and_nothing_else_is(name: str, tmp_path: Path):
    WRITERS[name](tmp_path / "new" / name)
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]
    assert (tmp_path / "new" / name).stat().st_size > 0


@pytest.mark.parametrize("name", WRITERS)
def test_a_place_that_cannot_be_written_is_named(name: str, tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / name).mkdir()
    for place in (tmp_path / "file" / name, tmp_path / name):
        with pytest.raises(AcidError, match=f"cannot write .*{name}: .*choose another folder"):
            WRITERS[name](place)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["file", name])


@pytest.mark.parametrize(("draw", "what"), [(draw_sheet, "picture"), (draw_figure, "figure"), (film, "video")])
@pytest.mark.parametrize("name", ["a", "a.txt"])
def test_an_ending_that_means_nothing_is_named(draw, what: str, name: str, tmp_path: Path):
    with pytest.raises(AcidError, match=rf"{what}.* must end in .*, got '{name}'"):
        draw(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
