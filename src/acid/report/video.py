"""Videos of several episodes side by side, mp4 or gif by the file's ending."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acid.errors import AcidError, ShapeError
from acid.files import replacing
from acid.report.images import as_frames, enlarge
from acid.report.sheet import Ending
from acid.report.style import ALARM, GOOD, INK, PAPER, QUIET, RULE, Name, font, look

_GAP = 8
_MARGIN = 12
_LINE = 22  # of the heading and of what is above a panel
_NOTE = 18
_HEADING: dict[str, Any] = {"size": 14, "bold": True}  # fonts
_NAME: dict[str, Any] = {"size": 13, "bold": True}
_KIND: dict[str, Any] = {"size": 12}
_NOTES: dict[str, Any] = {"size": 11}
_WORD: dict[str, Any] = {"size": 18, "bold": True}
_FORMATS = (".mp4", ".gif")


@dataclass(frozen=True)
class Clip:
    """One film. A single frame, such as a goal, is shown all the time; a shorter film holds its last frame."""

    condition: Name  # that acted
    frames: np.ndarray  # uint8 [T, H, W, 3]
    kind: str = ""  # "imagined", "executed"
    notes: Sequence[str] = ()  # under each frame; empty or one per frame
    verdict: Ending | None = None  # stamped on the last frame


def side_by_side(
    path: str | Path,
    panels: Sequence[Clip],
    *,
    fps: float = 10,
    scale: int = 3,
    heading: str = "",
    seconds: float = 0,
    hold: float = 0,
) -> int:
    """Write the video and return its number of frames.

    seconds: shown at least so long, each frame several times if there are few. hold: then the last frame once more.
    """
    path = Path(path)
    if path.suffix not in _FORMATS:
        raise AcidError(f"a video file must end in {' or '.join(_FORMATS)}, got {path.name!r}")
    _check(panels)
    length = max(len(panel.frames) for panel in panels)
    each = max(1, math.ceil(seconds * fps / length))
    shown = [_compose(panels, step, scale, heading) for step in range(length)]
    frames = [frame for frame in shown for _ in range(each)] + [shown[-1]] * round(hold * fps)
    with replacing(path, AcidError) as partial, tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / path.name  # what encodes goes by the ending of a name
        _write(whole, frames, fps)
        shutil.copyfile(whole, partial)
    return len(frames)


def _check(panels: Sequence[Clip]) -> None:
    if not panels:
        raise ShapeError("a video needs at least one panel, got none")
    heights = {as_frames(look(panel.condition).label, panel.frames).shape[1] for panel in panels}
    if len(heights) > 1:
        raise ShapeError(f"panels side by side need one height, got {sorted(heights)}")
    for panel in panels:
        if panel.notes and len(panel.notes) != len(panel.frames):
            raise ShapeError(
                f"{look(panel.condition).label} has {len(panel.notes)} notes for {len(panel.frames)} frames"
            )


def _compose(panels: Sequence[Clip], step: int, scale: int, heading: str) -> np.ndarray:
    """One video frame, [H, W, 3] with even sides as video codecs want them. No text reaches into another."""
    from PIL import Image, ImageDraw

    widths = [max(panel.frames.shape[2] * scale, *_lengths(panel)) for panel in panels]
    width = sum(widths) + _GAP * (len(panels) - 1)
    lines = wrapped(heading, width, _HEADING)
    top = _MARGIN + _LINE * (len(lines) + (2 if any(panel.kind for panel in panels) else 1))
    note = _NOTE if any(panel.notes for panel in panels) else 0
    size = (2 * _MARGIN + width, top + panels[0].frames.shape[1] * scale + note + _MARGIN)
    canvas = Image.new("RGB", (size[0] + size[0] % 2, size[1] + size[1] % 2), PAPER)
    draw = ImageDraw.Draw(canvas)
    for number, line in enumerate(lines):
        draw.text((_MARGIN, _MARGIN + _LINE * number), line, fill=INK, font=font(**_HEADING), anchor="lt")
    left = _MARGIN
    for panel, width in zip(panels, widths, strict=True):
        _draw_panel(canvas, draw, panel, min(step, len(panel.frames) - 1), (left, top), scale)
        left += width + _GAP
    return np.asarray(canvas)


def wrapped(text: str, width: float, style: Mapping[str, Any]) -> list[str]:
    """The words in lines that are at most so wide, unless a single word is wider."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font(**style).getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _lengths(panel: Clip) -> list[int]:
    """Of everything that is written above, on and below a panel, in pixels."""
    written = [(look(panel.condition).label, _NAME), (panel.kind, _KIND), *((note, _NOTES) for note in panel.notes)]
    written += [] if panel.verdict is None else [(f" {panel.verdict.word} ", _WORD)]
    return [math.ceil(font(**style).getlength(text)) for text, style in written]


def _draw_panel(canvas: Any, draw: Any, panel: Clip, step: int, place: tuple[int, int], scale: int) -> None:
    from PIL import Image

    image, (left, top) = enlarge(panel.frames[step], scale), place
    under = top - 8
    if panel.kind:
        draw.text((left, under), panel.kind, fill=QUIET, font=font(**_KIND), anchor="ls")
        under -= _LINE - 4
    draw.text((left, under), look(panel.condition).label, fill=look(panel.condition).colour, font=font(**_NAME),
              anchor="ls")  # fmt: skip
    canvas.paste(Image.fromarray(image), (left, top))
    draw.rectangle((left - 1, top - 1, left + image.shape[1], top + image.shape[0]), outline=RULE)
    if panel.verdict is not None and step == len(panel.frames) - 1:
        colour, (height, width) = GOOD if panel.verdict.good else ALARM, image.shape[:2]
        draw.rectangle((left, top, left + width - 1, top + height - 1), outline=colour, width=5)
        draw.rectangle((left, top + height - 34, left + width - 1, top + height - 1), fill=colour)
        middle = (left + width // 2, top + height - 17)
        draw.text(middle, panel.verdict.word, fill=PAPER, font=font(**_WORD), anchor="mm")
    if panel.notes:
        draw.text((left, top + image.shape[0] + 14), panel.notes[step], fill=INK, font=font(**_NOTES), anchor="ls")


def _write(path: Path, frames: Sequence[np.ndarray], fps: float) -> None:
    import imageio.v2 as imageio

    if path.suffix == ".gif":
        imageio.mimsave(path, list(frames), format="GIF", duration=1000 / fps, loop=0)  # type: ignore[arg-type]
        return
    # macro_block_size 2: even sides are enough, rounding to 16 would rescale and blur the pixels.
    with imageio.get_writer(path, format="FFMPEG", fps=fps, codec="libx264", quality=8, macro_block_size=2) as writer:  # type: ignore[arg-type]
        for frame in frames:
            writer.append_data(frame)  # type: ignore[attr-defined]
