"""The figures: success against budget, consistency and errors over steps; any chart of the report."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acid.errors import ShapeError
from acid.report.chart import Chart, Series
from acid.report.shapes import Matrix
from acid.report.style import ALARM, IMAGINED, INK, PAPER, QUIET, RULE, TRUE, Name, Names, drawing, look

_WIDTH, _HEIGHT = 4.2, 3.0  # inches, one column
_TEXT = 0.075  # height of a line of text, as a share of that of the axes


@dataclass(frozen=True)
class Measured:
    """A mean with its interval."""

    mean: float
    low: float
    high: float


def success_against_budget(
    path: str | Path,
    planners: Mapping[Names, Mapping[int, Measured]],
    *,
    baselines: Mapping[Names, Measured] | None = None,
    title: str = "",
    budget: str = "candidates N per iteration",
) -> None:
    """Success of each planner (condition → budget → share) with intervals; baselines without a budget are lines."""
    budgets = sorted({size for series in planners.values() for size in series})
    with drawing(path, width=_WIDTH + 1.0, height=_HEIGHT) as (_, (axes,)):
        for rank, (name, series) in enumerate(planners.items()):
            sizes = sorted(series)
            shift = 0.06 * (rank - (len(planners) - 1) / 2)  # side by side, so that intervals do not overlap
            places = [budgets.index(size) + shift for size in sizes]
            _points(axes, places, [series[size] for size in sizes], name)
        for name, value in (baselines or {}).items():
            axes.axhline(
                100 * value.mean, color=look(name).colour, linestyle=(0, (4, 2)), linewidth=1.2, label=look(name).label
            )
        axes.set_xticks(range(len(budgets)), [str(size) for size in budgets])
        axes.set_xlim(-0.4, len(budgets) - 0.6)
        axes.set_ylim(-3, 103)  # a mark at 0 or 100 is seen whole
        axes.set_xlabel(budget)
        axes.set_ylabel("success (%)")
        axes.set_title(title)
        _legend_beside(axes)


def consistency_per_step(path: str | Path, residuals: Mapping[Names, np.ndarray], *, title: str = "") -> None:
    """Residual ‖a_t − â_t‖² at each step of the plan, one curve per condition; each array is [plans, H]."""
    with drawing(path, width=_WIDTH, height=_HEIGHT) as (_, (axes,)):
        steps = 0
        for name, array in residuals.items():
            array = _matrix(name, array)
            steps = max(steps, array.shape[1])
            x = np.arange(1, array.shape[1] + 1)
            mean, half = array.mean(0), 1.96 * array.std(0, ddof=min(1, len(array) - 1)) / np.sqrt(len(array))
            axes.fill_between(x, mean - half, mean + half, color=look(name).colour, alpha=0.2, linewidth=0)
            axes.plot(x, mean, color=look(name).colour, marker=look(name).marker, label=look(name).label)
        axes.set_xticks(range(1, steps + 1))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("step of the plan")
        axes.set_ylabel("consistency residual")
        axes.set_title(title)
        _legend(axes)


def followed_steps(
    path: str | Path, panels: Mapping[str, tuple[np.ndarray, np.ndarray]], *, threshold: float, title: str = ""
) -> None:
    """A panel per rollout: the residual of each step between true frames and between imagined ones, both [H].

    Imagined steps above the threshold are marked: there the model does not follow its action.
    """
    with drawing(path, width=0.75 + 2.6 * len(panels), height=_HEIGHT, panels=len(panels)) as (figure, all_axes):
        for axes, (name, (true, imagined)) in zip(all_axes, panels.items(), strict=True):
            true, imagined = _matrix(name, np.stack([true, imagined]))
            x = np.arange(1, len(true) + 1)
            missed = imagined > threshold
            axes.axhline(threshold, color=QUIET, linestyle=(0, (4, 2)), linewidth=1.0)
            axes.plot(x, true, color=TRUE, marker="s", label="true frames")
            axes.plot(x, imagined, color=IMAGINED, marker="o", label="imagined frames")
            axes.scatter(x[missed], imagined[missed], s=90, facecolors="none", edgecolors=ALARM, zorder=3)
            axes.set_xticks(x)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("step")
            axes.set_title(name)
        all_axes[0].set_ylabel("consistency residual")
        _legend(all_axes[0])
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=INK)


def inferred_against_found(
    path: str | Path, panels: Mapping[str, tuple[np.ndarray, np.ndarray]], *, inferred: str, found: str
) -> None:
    """A scatter plot per name: the error that was inferred (x) and the true error that was found (y), both [n].

    On the dashed line both are equal.
    """
    with drawing(path, width=0.75 + 2.6 * len(panels), height=_HEIGHT, panels=len(panels)) as (_, all_axes):
        for axes, (name, pair) in zip(all_axes, panels.items(), strict=True):
            x, y = _matrix(name, np.stack(pair))
            highest = 1.05 * max(x.max(), y.max())
            axes.plot([0, highest], [0, highest], color=QUIET, linestyle=(0, (4, 2)), linewidth=1.0)
            axes.scatter(x, y, s=9, color=IMAGINED, alpha=0.5, linewidths=0)
            axes.set_xlim(0, highest)
            axes.set_ylim(0, highest)
            axes.set_xlabel(inferred)
            axes.set_title(name)
        all_axes[0].set_ylabel(found)


def error_over_steps(
    path: str | Path,
    panels: Mapping[str, Mapping[Names, Sequence[Measured]]],
    *,
    error: str,
    step: str,
    title: str = "",
    reference: Name | None = None,
) -> None:
    """An error over the steps of an episode, from step 0 on: a panel per task, a curve per condition with its band.

    A shorter curve continues as a horizontal line: nothing changes there any more. Names stand at the ends of the
    curves. reference: the curve whose last value is drawn as a line, which shows when the others get there.
    """
    with drawing(path, width=0.75 + 3.4 * len(panels), height=_HEIGHT, panels=len(panels)) as (figure, all_axes):
        for axes, (task, curves) in zip(all_axes, panels.items(), strict=True):
            longest = max(len(curve) for curve in curves.values())
            ends = []
            for name, curve in curves.items():
                points = [*curve, *[curve[-1]] * (longest - len(curve))]
                mean, low, high = (np.array([getattr(p, part) for p in points]) for part in ("mean", "low", "high"))
                axes.fill_between(range(longest), low, high, color=look(name).colour, alpha=0.2, linewidth=0)
                axes.plot(range(longest), mean, color=look(name).colour, marker=look(name).marker)
                ends.append((float(mean[-1]), f"{look(name).label} {mean[-1]:.2f}", look(name).colour))
                if name == reference:
                    axes.axhline(mean[-1], color=look(name).colour, linestyle=(0, (4, 2)), linewidth=1.0)
            axes.set_xticks(range(longest))
            axes.set_ylim(bottom=0)
            axes.set_xlabel(step)
            axes.set_title(task)
            _name_ends(axes, ends)
        all_axes[0].set_ylabel(error)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=INK)


def _name_ends(axes: Any, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write texts in their colours to the right of the axes, each at its height or where there is room above."""
    low, high = axes.get_ylim()
    above = -np.inf
    for height, text, colour in sorted(ends):
        above = max(height, above + _TEXT * (high - low))
        axes.annotate(text, (1.02, above), xycoords=("axes fraction", "data"), color=colour, va="center",
                      fontweight="bold", fontsize=8, annotation_clip=False)  # fmt: skip


def draw_chart(path: str | Path, chart: Chart, *, columns: int | None = None) -> Path:
    """A chart of the report as a picture, its panels in so many columns; curves are named beside the last of each row.

    Panels of a chart share the looks of their curves.
    """
    across = columns or len(chart.panels)
    rows = -(-len(chart.panels) // across)
    size = {"width": max(1.0, 0.6 * across) * _WIDTH + 1.5, "height": 0.8 * _HEIGHT * rows}
    with drawing(path, **size, panels=len(chart.panels), columns=across) as (_, all_axes):
        for axes, panel in zip(all_axes, chart.panels, strict=True):
            for series in panel.series:
                _curve(axes, series)
            for level in panel.levels:
                seen = look(level.name)
                axes.axhline(level.y, color=seen.colour, linestyle=(0, (4, 2)), linewidth=1.2, label=seen.label)
            axes.set_xscale("log" if chart.log_x else "linear")
            axes.set_yscale("log" if chart.log_y else "linear")
            if chart.ticks:
                axes.set_xticks(list(chart.ticks), list(chart.ticks.values()))
                axes.minorticks_off()
            if chart.unit == "%":
                axes.set_ylim(0, 105)
            axes.set_title(panel.title)
        for axes in all_axes[-across:]:
            axes.set_xlabel(chart.x)
        for axes in all_axes[::across]:
            axes.set_ylabel(chart.y)
        for last, panel in zip(all_axes[across - 1 :: across], chart.panels[across - 1 :: across], strict=True):
            _name_ends(
                last,
                [*map(_end, panel.series), *((v.y, look(v.name).label, look(v.name).colour) for v in panel.levels)],
            )
    return Path(path)


def _end(series: Series) -> tuple[float, str, str]:
    """Where a curve ends, and its name."""
    return max((p.x, p.y) for p in series.points)[1], look(series.name).label, look(series.name).colour


def draw_matrix(path: str | Path, matrix: Matrix) -> Path:
    """Squares with "yes" or "no", and what happens in order beside them."""
    with drawing(path, width=2 * _WIDTH, height=_HEIGHT, panels=2) as (_, (told, axes)):
        from matplotlib.colors import ListedColormap

        steps = [textwrap.fill(f"{k}. {step}", 48, subsequent_indent="    ") for k, step in enumerate(matrix.steps, 1)]
        told.axis("off")
        told.set_title(matrix.title)
        told.text(0, 0.95, "\n".join(steps), va="top", color=INK, fontsize=8, linespacing=1.5)
        axes.imshow(np.array(matrix.values), cmap=ListedColormap([RULE, IMAGINED]), vmin=0, vmax=1)
        for (row, column), value in np.ndenumerate(np.array(matrix.values)):
            axes.text(column, row, "yes" if value else "no", ha="center", va="center", color=PAPER if value else INK)
        axes.set_xticks(range(len(matrix.columns)), matrix.columns)
        axes.set_yticks(range(len(matrix.rows)), matrix.rows)
        axes.set_xlabel(matrix.column_axis)
        axes.set_ylabel(matrix.row_axis)
        axes.grid(visible=False)
    return Path(path)


def _curve(axes: Any, series: Series) -> None:
    """One series of a chart, with intervals where there are some."""
    seen, points = look(series.name), sorted(series.points, key=lambda point: point.x)
    bars = [[p.y - (p.y if p.low is None else p.low), (p.y if p.high is None else p.high) - p.y] for p in points]
    axes.errorbar(
        [point.x for point in points],
        [point.y for point in points],
        yerr=np.array(bars).T,
        color=seen.colour,
        marker=seen.marker,
        markerfacecolor="white" if series.hollow else seen.colour,
        linestyle="-" if series.joined else "none",
        linewidth=1.2,
        elinewidth=0.8,
        capsize=2,
        label=seen.label,
    )


def _points(axes: Any, places: Sequence[float], values: Sequence[Measured], name: Name) -> None:
    mean, low, high = (100 * np.array([getattr(v, part) for v in values]) for part in ("mean", "low", "high"))
    axes.plot(places, mean, color=look(name).colour, linewidth=1.0, alpha=0.5)
    axes.errorbar(
        places,
        mean,
        yerr=[mean - low, high - mean],
        color=look(name).colour,
        marker=look(name).marker,
        linestyle="none",
        elinewidth=1.6,
        capsize=3,
        label=look(name).label,
    )


def _matrix(name: Name, array: np.ndarray) -> np.ndarray:
    array = np.asarray(array, dtype=float)
    if array.ndim != 2 or not array.size:
        raise ShapeError(f"values of {look(name).label!r} must be a non-empty matrix, got shape {list(array.shape)}")
    return array


def _legend_beside(axes: Any) -> None:
    """Draw the legend beside the axes, highest value first, in the order of the curves."""
    entries = sorted(zip(*axes.get_legend_handles_labels(), strict=True), key=lambda entry: -_height(entry[0]))
    axes.legend(*zip(*entries, strict=True), loc="upper left", bbox_to_anchor=(1.0, 1.0), labelcolor=INK)


def _height(handle: Any) -> float:
    line = getattr(handle, "lines", [handle])[0]  # an error bar holds its points as the first of its lines
    return float(np.mean(line.get_ydata()))


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(labelcolor=INK, edgecolor=QUIET)
