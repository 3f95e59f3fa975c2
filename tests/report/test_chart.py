"""Where the marks of a chart are."""

from __future__ import annotations

import pytest

from acid.errors import ShapeError
from acid.report.chart import Bar, Chart, Forest, Level, Panel, Point, Scale, Series, drawn_forest, drawn_panels


def chart(points: list[Point], **options) -> Chart:
    return Chart(
        "title", "text", [Panel("panel", [Series("curve", points)], [Level(2.0, "level")])], "x", "y", **options
    )


def test_larger_values_are_further_right_and_higher():
    (panel,) = drawn_panels(chart([Point(1, 1), Point(2, 3, 2.5, 3.5)]))
    first, second = panel["series"][0]["marks"]
    assert first["x"] < second["x"]
    assert first["y"] > second["y"]  # pixels are counted from the top
    assert second["value"] == "3 [2.5, 3.5]"
    assert first["y"] > panel["levels"][0]["y"] > second["y"]


def test_a_log_axis_has_equal_steps_for_equal_factors_and_leaves_zero_out():
    (panel,) = drawn_panels(chart([Point(k, 10.0**k) for k in range(3)] + [Point(3, 0.0)], log_y=True))
    marks = panel["series"][0]["marks"]
    assert len(marks) == 3
    assert marks[0]["y"] - marks[1]["y"] == pytest.approx(marks[1]["y"] - marks[2]["y"], abs=0.2)
    assert {text for _, text in panel["y_ticks"]} <= {"1", "10", "100"}


def test_places_along_x_may_have_names():
    (panel,) = drawn_panels(chart([Point(30, 1), Point(300, 2)], ticks={30: "few", 300: "many"}, log_x=True))
    assert [text for _, text in panel["x_ticks"]] == ["few", "many"]
    assert panel["series"][0]["marks"][1]["place"] == "many"


def test_a_forest_marks_what_excludes_zero_and_which_side_is_better():
    bars = [Bar("gain", 2, 1, 3, published=4), Bar("unclear", 1, -1, 3), Bar("loss", -2, -3, -1)]
    right, left = (drawn_forest(Forest("t", "t", bars, "points", better=side)) for side in ("right", "left"))
    assert [bar["certain"] for bar in right["bars"]] == [True, False, True]
    assert [bar["good"] for bar in right["bars"]] == [True, True, False]
    assert [bar["good"] for bar in left["bars"]] == [False, False, True]
    assert right["bars"][0]["low"] > right["zero"] > right["bars"][2]["high"]
    assert right["bars"][0]["value"] == "+2 [+1, +3] points"


def test_an_axis_without_values_is_refused():
    with pytest.raises(ShapeError, match="at least one finite value"):
        Scale.over([0.0, -1.0], 0, 1, log=True)
