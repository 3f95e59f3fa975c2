"""Charts as values, and where everything of them is drawn. The page's templates turn that into SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acid.errors import ShapeError
from acid.report.style import Name, look

WIDTH, HEIGHT = 340, 230  # of a panel, in pixels; it may be shown larger or smaller
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 14, 40
FOREST, BAR = 400, 40  # width of a forest and height of each of its lines


@dataclass(frozen=True)
class Point:
    """A value, with its interval if there is one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    note: str = ""  # told beside the value when a reader points at it


@dataclass(frozen=True)
class Series:
    """One curve."""

    name: Name
    points: Sequence[Point]
    hollow: bool = False  # for published numbers beside ours
    joined: bool = True


@dataclass(frozen=True)
class Level:
    """A horizontal line."""

    y: float
    name: Name = ""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    series: Sequence[Series]
    levels: Sequence[Level] = ()


@dataclass(frozen=True)
class Chart:
    """Panels that share their axes' names. `text` says in a sentence what there is to see."""

    title: str
    text: str
    panels: Sequence[Panel]
    x: str
    y: str
    unit: str = ""
    ticks: Mapping[float, str] = field(default_factory=dict)  # names of places along x
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Bar:
    """A line of a forest: a difference with its interval, beside the published one."""

    label: str
    value: float
    low: float
    high: float
    published: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Forest:
    """Differences from a baseline below each other; `better` says on which side of zero the gains are."""

    title: str
    text: str
    bars: Sequence[Bar]
    unit: str
    better: str = "right"


@dataclass(frozen=True)
class Scale:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float, *, log: bool = False, margin: float = 0.06):
        found = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        if not found:
            raise ShapeError("a chart needs at least one finite value that its axis can show")
        low, high = (min(found), max(found)) if not log else (math.log10(min(found)), math.log10(max(found)))
        room = margin * (high - low) or 0.5 * abs(high) or 0.5
        return cls(low - room, high + room, start, end, log)

    def __call__(self, value: float) -> float:
        place = math.log10(value) if self.log else value
        return round(self.start + (place - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self) -> list[tuple[float, str]]:
        """A few round numbers and how they are written."""
        from matplotlib.ticker import LogLocator, MaxNLocator

        if self.log:
            decades = self.high - self.low
            locator = LogLocator(subs=(1.0,) if decades > 2 else (1.0, 2.0, 5.0), numticks=6)
            places = [float(place) for place in locator.tick_values(10**self.low, 10**self.high)]
            return [(place, f"{place:g}") for place in places if self.low <= math.log10(place) <= self.high]
        places = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
        return [(float(p), f"{round(float(p), 10):g}") for p in places if self.low <= p <= self.high]


def drawn_panels(chart: Chart) -> list[dict[str, Any]]:
    """Where everything of a chart is, a dictionary per panel for the template."""
    shown = [point for panel in chart.panels for series in panel.series for point in series.points]
    x = Scale.over([p.x for p in shown], LEFT, WIDTH - RIGHT, log=chart.log_x)
    return [_drawn_panel(chart, panel, x) for panel in chart.panels]


def _drawn_panel(chart: Chart, panel: Panel, x: Scale) -> dict[str, Any]:
    points = [point for series in panel.series for point in series.points]
    values = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
    y = Scale.over([*values, *(level.y for level in panel.levels)], HEIGHT - BOTTOM, TOP, log=chart.log_y)
    ticks = chart.ticks or dict(x.ticks())
    return {
        "title": panel.title,
        "x_ticks": [(x(value), text) for value, text in ticks.items()],
        "y_ticks": [(y(value), text) for value, text in y.ticks()],
        "levels": [{"y": y(level.y), "label": look(level.name).label} for level in panel.levels],
        "series": [_drawn_series(chart, series, x, y) for series in panel.series],
    }


def _drawn_series(chart: Chart, series: Series, x: Scale, y: Scale) -> dict[str, Any]:
    shown = [p for p in series.points if math.isfinite(p.y) and (p.y > 0 or not chart.log_y)]
    band = [p for p in shown if p.low is not None and p.high is not None and (p.low > 0 or not chart.log_y)]
    edge = [(x(p.x), y(p.high)) for p in band] + [(x(p.x), y(p.low)) for p in reversed(band)]  # type: ignore[arg-type]
    name = look(series.name)
    return {
        "label": name.label,
        "colour": name.colour,
        "hollow": series.hollow,
        "line": [(x(p.x), y(p.y)) for p in shown] if series.joined and len(shown) > 1 else [],
        "band": edge if series.joined and len(band) > 1 else [],
        "marks": [
            {
                "x": x(p.x),
                "y": y(p.y),
                "whisker": None if p.low is None or p.high is None or series.joined else (y(p.low), y(p.high)),
                "place": chart.ticks.get(p.x, f"{p.x:g}"),
                "value": _told(p.y, p.low, p.high, chart.unit),
                "note": p.note,
            }
            for p in shown
        ],
    }


def drawn_forest(forest: Forest) -> dict[str, Any]:
    """Where everything of a forest is, for the template."""
    ends = [v for bar in forest.bars for v in (bar.low, bar.high, bar.published) if v is not None]
    x = Scale.over([0.0, *ends], 12, FOREST - 12)
    return {
        "width": FOREST,
        "height": TOP + BAR * len(forest.bars) + BOTTOM,
        "zero": x(0.0),
        "ticks": [(x(value), text) for value, text in x.ticks()],
        "bars": [
            {
                "label": bar.label,
                "y": TOP + BAR * (row + 0.62),
                "low": x(bar.low),
                "mid": x(bar.value),
                "high": x(bar.high),
                "published": None if bar.published is None else x(bar.published),
                "certain": bar.low > 0 or bar.high < 0,
                "good": (bar.value > 0) == (forest.better == "right"),
                "value": _told(bar.value, bar.low, bar.high, forest.unit, sign=True),
                "note": bar.note,
            }
            for row, bar in enumerate(forest.bars)
        ],
    }


def _told(value: float, low: float | None, high: float | None, unit: str, *, sign: bool = False) -> str:
    def number(one: float) -> str:
        return f"{one:{'+' if sign else ''}.3g}"

    around = "" if low is None or high is None else f" [{number(low)}, {number(high)}]"
    return f"{number(value)}{around} {unit}".strip()
