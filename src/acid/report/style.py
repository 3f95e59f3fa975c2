"""One style for every figure: colours that colour-blind readers can distinguish, fonts, formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acid.errors import AcidError, need_package
from acid.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#222222"
QUIET = "#8a8a8a"
RULE = "#d9d9d9"
PAPER = "#ffffff"
ALARM = "#d00000"
GOOD = "#1a7f37"
TRUE, IMAGINED = "#6e6e6e", "#0072b2"  # what happened, and what was imagined


@dataclass(frozen=True)
class Look:
    """How one thing is shown in every figure and table."""

    label: str
    colour: str
    marker: str = "o"


Name = str | Look  # a plain name is shown as it is, always in the same colour
Names = Any  # keys of a mapping that are a Name, which a type checker cannot express
_OTHERS = ("#d55e00", "#56b4e9", "#882255", "#44aa99")

_RC: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.grid.axis": "y",
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


def look(name: Name) -> Look:
    return name if isinstance(name, Look) else Look(name, _OTHERS[sum(name.encode()) % len(_OTHERS)])


@contextmanager
def drawing(
    path: str | Path, *, width: float, height: float, panels: int = 1, columns: int | None = None
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure in inches, saved to `path` (PNG, PDF or SVG by its ending) at the end.

    Its panels are side by side, or in as many columns as are asked for.
    """
    matplotlib = need_package("matplotlib", "report", "drawing")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(dict(_RC)):
        figure = Figure(figsize=(width, height), layout="constrained")  # no pyplot: no global state, no display
        across = columns or panels
        yield figure, [figure.add_subplot(-(-panels // across), across, panel + 1) for panel in range(panels)]
        kind = Path(path).suffix.lstrip(".").lower()
        if kind not in figure.canvas.get_supported_filetypes():
            raise AcidError(f"the file of a figure must end in .png, .pdf or .svg, got {Path(path).name!r}")
        with replacing(path, AcidError) as partial:
            figure.savefig(partial, dpi=200, format=kind)


@cache
def font(size: int, *, bold: bool = False) -> Any:
    """DejaVu Sans from matplotlib; it has the Greek letters that Pillow's own font lacks."""
    matplotlib = need_package("matplotlib", "report", "drawing")
    from PIL import ImageFont

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)
