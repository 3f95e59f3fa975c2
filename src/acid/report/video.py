"""Videos of several episodes side by side, mp4 or gif by the file's ending."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acid.errors import AcidError, ShapeError
from acid.files import replacing
from acid.report.images import as_frames, enlarge
from acid.report.sheet import Verdict
from acid.report.style import ALARM, GOOD, INK, PAPER, QUIET, RULE, Name, font, look

_GAP = 8
_MARGIN = 12
_TITLE = 22
_NOTE = 18
_FORMATS = (".mp4", ".gif")


@dataclass(frozen=True)
class Panel:
    """One film. A single frame, such as a goal, is shown all the time; a shorter film holds its last frame."""

    condition: Name  # that acted
    frames: np.ndarray  # uint8 [T, H, W, 3]
    kind: str = ""  # "imagined", "executed"
    notes: Sequence[str] = ()  # under each frame; empty or one per frame
    verdict: Verdict | None = None  # stamped on the last frame


def side_by_side(
    path: str | Path,
    panels: Sequence[Panel],
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


def _check(panels: Sequence[Panel]) -> None:
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


def _compose(panels: Sequence[Panel], step: int, scale: int, heading: str) -> np.ndarray:
    """One video frame, [H, W, 3] with even sides as video codecs want them."""
    from PIL import Image, ImageDraw

    widths = [panel.frames.shape[2] * scale for panel in panels]
    height = panels[0].frames.shape[1] * scale
    note = _NOTE if any(panel.notes for panel in panels) else 0
    above = _TITLE if heading else 0
    size = (2 * _MARGIN + sum(widths) + _GAP * (len(panels) - 1), 2 * _MARGIN + above + _TITLE + height + note)
    canvas = Image.new("RGB", (size[0] + size[0] % 2, size[1] + size[1] % 2), PAPER)
    draw = ImageDraw.Draw(canvas)
    left = _MARGIN
    if heading:
        draw.text((_MARGIN, _MARGIN), heading, fill=INK, font=font(14, bold=True), anchor="lt")
    for panel, width in zip(panels, widths, strict=True):
        _draw_panel(canvas, draw, panel, min(step, len(panel.frames) - 1), (left, _MARGIN + above + _TITLE), scale)
        left += width + _GAP
    return np.asarray(canvas)


def _draw_panel(canvas: Any, draw: Any, panel: Panel, step: int, place: tuple[int, int], scale: int) -> None:
    from PIL import Image

    image, (left, top) = enlarge(panel.frames[step], scale), place
    name = font(13, bold=True)
    title = look(panel.condition).label
    draw.text((left, top - 8), title, fill=look(panel.condition).colour, font=name, anchor="ls")
    if panel.kind:
        after = left + draw.textlength(title + " ", font=name)
        draw.text((after, top - 8), panel.kind, fill=QUIET, font=font(12), anchor="ls")
    canvas.paste(Image.fromarray(image), (left, top))
    draw.rectangle((left - 1, top - 1, left + image.shape[1], top + image.shape[0]), outline=RULE)
    if panel.verdict is not None and step == len(panel.frames) - 1:
        colour, (height, width) = GOOD if panel.verdict.good else ALARM, image.shape[:2]
        draw.rectangle((left, top, left + width - 1, top + height - 1), outline=colour, width=5)
        draw.rectangle((left, top + height - 34, left + width - 1, top + height - 1), fill=colour)
        middle = (left + width // 2, top + height - 17)
        draw.text(middle, panel.verdict.word, fill=PAPER, font=font(18, bold=True), anchor="mm")
    if panel.notes:
        draw.text((left, top + image.shape[0] + 14), panel.notes[step], fill=INK, font=font(11), anchor="ls")


def _write(path: Path, frames: Sequence[np.ndarray], fps: float) -> None:
    import imageio.v2 as imageio

    if path.suffix == ".gif":
        imageio.mimsave(path, list(frames), format="GIF", duration=1000 / fps, loop=0)  # type: ignore[arg-type]
        return
    # macro_block_size 2: even sides are enough, rounding to 16 would rescale and blur the pixels.
    with imageio.get_writer(path, format="FFMPEG", fps=fps, codec="libx264", quality=8, macro_block_size=2) as writer:  # type: ignore[arg-type]
        for frame in frames:
            writer.append_data(frame)  # type: ignore[attr-defined]
