from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from acid.errors import ShapeError
from acid.report import Look, SheetRow, sheet

START = np.full((8, 10, 3), 40, np.uint8)
GOAL = np.full((8, 10, 3), 250, np.uint8)


def frames(count: int, value: int = 90) -> np.ndarray:
    return np.full((count, 8, 10, 3), value, np.uint8)


def test_the_sheet_holds_every_frame_enlarged_without_blur(tmp_path):
    path = tmp_path / "new" / "sheet.png"
    checker = (np.indices((8, 10)).sum(0) % 2 * 255).astype(np.uint8)
    moving = np.repeat(checker[None, :, :, None], 3, axis=3)
    size = sheet(path, [SheetRow("acid", "executed", moving)], start=START, goal=GOAL, scale=4)
    image = np.asarray(Image.open(path))
    assert image.shape == (size[1], size[0], 3)
    assert image.std() > 0
    expected = checker.repeat(4, 0).repeat(4, 1)
    windows = np.lib.stride_tricks.sliding_window_view(image[..., 0], expected.shape)
    assert (windows == expected).all((2, 3)).sum() == 1


def test_start_is_left_and_goal_is_right_of_every_row(tmp_path):
    path = tmp_path / "sheet.png"
    rows = [SheetRow("original", "imagined", frames(3)), SheetRow("acid", "executed", frames(2), ["0.1", "0.2"])]
    sheet(path, rows, start=START, goal=GOAL, titles=["5", "10", "15"], heading="Reacher", scale=4)
    image = np.asarray(Image.open(path)).astype(int)
    columns = {v: np.where((image == v).all(2).sum(0) >= 2 * 8 * 4)[0] for v in (40, 90, 250)}
    assert columns[40].max() < columns[90].min()
    assert columns[90].max() < columns[250].min()
    assert len(columns[90]) == 2 * 10 * 4  # the third frame exists in one row only


def test_more_rows_and_frames_make_a_larger_sheet(tmp_path):
    one = sheet(tmp_path / "1.png", [SheetRow("acid", "executed", frames(2))], start=START, goal=GOAL)
    two = sheet(tmp_path / "2.png", [SheetRow("acid", "executed", frames(4))] * 2, start=START, goal=GOAL)
    assert two[0] > one[0]
    assert two[1] > one[1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (SheetRow("acid", "imagined", frames(2).astype(float)), "'acid imagined'.*float64"),
        (SheetRow("acid", "imagined", np.zeros((2, 9, 9, 3), np.uint8)), "'acid imagined'.*start"),
        (SheetRow("acid", "imagined", frames(2), ["one"]), "1 notes for 2 frames"),
    ],
)
def test_bad_rows_are_named(tmp_path, row, message):
    with pytest.raises(ShapeError, match=message):
        sheet(tmp_path / "sheet.png", [row], start=START, goal=GOAL)


def test_titles_must_match_the_columns(tmp_path):
    with pytest.raises(ShapeError, match="1 titles for 2"):
        sheet(tmp_path / "s.png", [SheetRow("acid", "executed", frames(2))], start=START, goal=GOAL, titles=["a"])


def test_start_and_goal_may_be_left_out(tmp_path):
    rows = [SheetRow("acid", "imagined", frames(3))]
    whole = sheet(tmp_path / "a.png", rows, start=START, goal=GOAL, scale=2)
    alone = sheet(tmp_path / "b.png", rows, titles=["1", "2", "3"], scale=2)
    image = np.asarray(Image.open(tmp_path / "b.png"))
    assert (image == 90).all(2).sum() == 3 * 8 * 10 * 4
    assert whole[0] - alone[0] > 2 * 2 * 10
    only_start = sheet(tmp_path / "c.png", rows, start=START, scale=2)
    assert alone[0] < only_start[0] < whole[0]


def test_marked_frames_have_a_red_box(tmp_path):
    for marked in ((), (1,)):
        sheet(tmp_path / "m.png", [SheetRow("acid", "imagined", frames(3), marked=marked)], scale=4)
        red = (np.asarray(Image.open(tmp_path / "m.png")) == (208, 0, 0)).all(2)
        assert red.any() == bool(marked)
        assert (np.asarray(Image.open(tmp_path / "m.png")) == 90).all(2).sum() == 3 * 8 * 10 * 16  # nothing is covered
    with pytest.raises(ShapeError, match=r"marks \[3\] of 3 frames"):
        sheet(tmp_path / "m.png", [SheetRow("acid", "imagined", frames(3), marked=(3,))])


def test_a_condition_is_shown_by_its_look(tmp_path):
    row = SheetRow(Look("ACID", "#0072b2"), "executed", frames(2))
    sheet(tmp_path / "l.png", [row, row], scale=4)
    blue = (np.asarray(Image.open(tmp_path / "l.png")) == (0, 0x72, 0xB2)).all(2)
    assert blue.sum() > 4 * 2 * 8 * 4  # the bar beside both rows, and the label
    with pytest.raises(ShapeError, match="ACID executed has 1 notes for 2 frames"):
        sheet(tmp_path / "l.png", [SheetRow(Look("ACID", "#0072b2"), "executed", frames(2), ["one"])])
