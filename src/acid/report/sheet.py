"""Image sheets: what was imagined above what happened, start at the left, goal at the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acid.errors import ShapeError
from acid.report.images import as_frames, enlarge, save_image
from acid.report.style import ALARM, GOOD, INK, PAPER, QUIET, RULE, Name, font, look

_GAP = 6  # between frames
_MARGIN = 16
_GROUP_GAP = 14  # between conditions
_BAR = 4  # the coloured bar that marks a condition
_LABELS = 146  # width of the label column
_NOTE = 15  # height of a line of small text
_VERDICT = 230  # width of the column that says how each row ended


@dataclass(frozen=True)
class Ending:
    """One large word, green or red, and what it means."""

    word: str
    good: bool
    details: Sequence[str] = ()  # lines below it


@dataclass(frozen=True)
class SheetRow:
    """Frames of one kind for one condition, with a short text under each."""

    condition: Name  # that acted
    kind: str  # "imagined", "executed"
    frames: np.ndarray  # uint8 [T, H, W, 3]
    notes: Sequence[str] = ()  # e.g. the error at each step; empty or one per frame
    marked: Sequence[int] = ()  # frames with a red box, counted from 0
    verdict: Ending | None = None  # how it ended, at the right


def sheet(
    path: str | Path,
    rows: Sequence[SheetRow],
    *,
    start: np.ndarray | None = None,
    goal: np.ndarray | None = None,
    titles: Sequence[str] = (),
    heading: str = "",
    scale: int = 2,
) -> tuple[int, int]:
    """Write a picture and return its (width, height) in pixels. Start and goal are uint8 [H, W, 3], or left out.

    `titles` are above the T frame columns. A row with fewer frames leaves its last cells empty.
    """
    from PIL import Image, ImageDraw

    layout = _Layout(rows, start, goal, titles, heading, scale)
    canvas = Image.new("RGB", layout.size, PAPER)
    draw = ImageDraw.Draw(canvas)
    _draw_headings(draw, layout, titles, heading)
    for top, row in zip(layout.tops, rows, strict=True):
        _draw_row(canvas, draw, layout, top, row, start, goal)
    _draw_conditions(draw, layout, rows)
    save_image(canvas, path)
    return layout.size


class _Layout:
    """Where everything goes, in pixels."""

    def __init__(
        self,
        rows: Sequence[SheetRow],
        start: np.ndarray | None,
        goal: np.ndarray | None,
        titles: Sequence[str],
        heading: str,
        scale: int,
    ) -> None:
        self.scale = scale
        self.columns = _check(rows, start, goal, titles)
        self.has_start, self.has_goal = start is not None, goal is not None
        self.height, self.width = (side * scale for side in rows[0].frames.shape[1:3])
        self.titles_top = _MARGIN + (heading.count("\n") * 18 + 26 if heading else 0)
        self.tops: list[int] = []
        top = self.titles_top + 20
        for previous, row in zip([None, *rows], rows, strict=False):
            if previous is not None:
                top += _GAP if previous.condition == row.condition else _GROUP_GAP
            self.tops.append(top)
            top += self.height + (_NOTE if row.notes else 0)
        self.verdicts_left = self.x(self.columns + self.has_goal) + self.width + _MARGIN
        judged = _VERDICT if any(row.verdict for row in rows) else 0
        self.size = (self.verdicts_left + judged, top + _MARGIN)

    def x(self, column: int) -> int:
        """Left edge of a column: 0 is the start, 1 to T the frames, T+1 the goal. Start and goal are set apart."""
        apart = 2 * _GAP * ((column > 0 and self.has_start) + (column > self.columns))
        return _MARGIN + _LABELS + (column - (not self.has_start)) * (self.width + _GAP) + apart


def _check(rows: Sequence[SheetRow], start: np.ndarray | None, goal: np.ndarray | None, titles: Sequence[str]) -> int:
    """The number of frame columns T."""
    if not rows:
        raise ShapeError("an image sheet needs at least one row, got none")
    ends = [(name, frame[None]) for name, frame in (("start", start), ("goal", goal)) if frame is not None]
    (first, reference), *others = [*ends, *((f"{look(r.condition).label} {r.kind}", r.frames) for r in rows)]
    shape = as_frames(first, reference).shape[1:]
    for name, frames in others:
        if as_frames(name, frames).shape[1:] != shape:
            raise ShapeError(f"frames of {name!r} are {list(frames.shape[1:])}, the {first} is {list(shape)}")
    for row in rows:
        if any(not 0 <= frame < len(row.frames) for frame in row.marked):
            raise ShapeError(
                f"{look(row.condition).label} {row.kind} marks {list(row.marked)} of {len(row.frames)} frames"
            )
        if row.notes and len(row.notes) != len(row.frames):
            raise ShapeError(
                f"{look(row.condition).label} {row.kind} has {len(row.notes)} notes for {len(row.frames)} frames"
            )
    columns = max(len(row.frames) for row in rows)
    if titles and len(titles) != columns:
        raise ShapeError(f"{len(titles)} titles for {columns} columns of frames")
    return columns


def _draw_headings(draw: Any, layout: _Layout, titles: Sequence[str], heading: str) -> None:
    if heading:
        first, *more = heading.split("\n")
        draw.text((_MARGIN, _MARGIN), first, fill=INK, font=font(15, bold=True), anchor="lt")
        for line, text in enumerate(more):
            draw.text((_MARGIN, _MARGIN + 22 + 18 * line), text, fill=QUIET, font=font(12), anchor="lt")
    texts = dict(enumerate(titles or [""] * layout.columns, start=1))
    texts |= {0: "start"} if layout.has_start else {}
    texts |= {layout.columns + 1: "goal"} if layout.has_goal else {}
    for column, text in texts.items():
        centre = layout.x(column) + layout.width // 2
        draw.text((centre, layout.titles_top + 14), text, fill=INK, font=font(12), anchor="ms")


def _draw_row(
    canvas: Any,
    draw: Any,
    layout: _Layout,
    top: int,
    row: SheetRow,
    start: np.ndarray | None,
    goal: np.ndarray | None,
) -> None:
    from PIL import Image

    for column, frame in [(0, start), *enumerate(row.frames, start=1), (layout.columns + 1, goal)]:
        if frame is None:
            continue
        left = layout.x(column)
        canvas.paste(Image.fromarray(enlarge(frame, layout.scale)), (left, top))
        marked = column - 1 in row.marked and column <= layout.columns
        edge = 3 if marked else 1
        box = (left - edge, top - edge, left + layout.width - 1 + edge, top + layout.height - 1 + edge)
        draw.rectangle(box, outline=ALARM if marked else RULE, width=edge)
    for column, note in enumerate(row.notes, start=1):
        centre = layout.x(column) + layout.width // 2
        draw.text((centre, top + layout.height + 11), note, fill=INK, font=font(10), anchor="ms")
    middle = top + layout.height // 2
    if row.verdict is not None:
        colour = GOOD if row.verdict.good else ALARM
        at = layout.verdicts_left
        draw.text((at, middle - 8), row.verdict.word, fill=colour, font=font(22, bold=True), anchor="lm")
        for line, text in enumerate(row.verdict.details):
            draw.text((at, middle + 14 + 15 * line), text, fill=INK, font=font(11), anchor="lm")
    draw.text((_MARGIN + _BAR + 8, middle + 9), row.kind, fill=QUIET, font=font(12), anchor="lm")
    draw.text(
        (_MARGIN + _BAR + 8, middle - 9),
        look(row.condition).label,
        fill=look(row.condition).colour,
        font=font(13, bold=True),
        anchor="lm",
    )


def _draw_conditions(draw: Any, layout: _Layout, rows: Sequence[SheetRow]) -> None:
    """One coloured bar beside the rows of each condition."""
    for i, (top, row) in enumerate(zip(layout.tops, rows, strict=True)):
        continues = i + 1 < len(rows) and rows[i + 1].condition == row.condition
        bottom = layout.tops[i + 1] if continues else top + layout.height
        draw.rectangle((_MARGIN, top, _MARGIN + _BAR - 1, bottom), fill=look(row.condition).colour)
