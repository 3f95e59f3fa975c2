"""A page that holds one of everything."""

from __future__ import annotations

import numpy as np

from acid.report.chart import Bar, Chart, Forest, Level, Panel, Point, Series
from acid.report.page import Judged, Page, Section
from acid.report.reel import Curve, Reel, Track
from acid.report.shapes import Matrix, Picture
from acid.report.style import Look

TICKS, STEPS = 11, 2


def flat(values: list[int]) -> np.ndarray:
    """Frames of one grey each."""
    return np.stack([np.full((16, 16, 3), value, np.uint8) for value in values])


def reel() -> Reel:
    executed = flat([20 * k for k in range(TICKS)])
    return Reel(
        "Film",
        "A film.",
        [
            Track("ACID", "imagined", "#0072b2", flat([0, 100, 250]), [0] + [1] * 5 + [2] * 5),
            Track("ACID", "executed", "#0072b2", executed, list(range(TICKS)), [f"error {k}" for k in range(TICKS)]),
            Track("goal", "", "#222222", flat([128]), [0] * TICKS),
        ],
        [Curve("ACID", "#0072b2", [0.5, 2.0])],
        "residual",
        ticks_per_step=5,
    )


def page() -> Page:
    series = [
        Series(Look("ours", "#0072b2"), [Point(1, 60, 50, 70, "200 episodes"), Point(2, 80, 75, 85)]),
        Series(Look("the paper's", "#0072b2"), [Point(1, 62), Point(2, 88)], hollow=True),
    ]
    shown = [
        Chart("Curves", "Two of them.", [Panel("A", series, [Level(70, "Original")])], "budget", "success", "%"),
        Forest(
            "Gains", "Three.", [Bar("Cube", 4, -1, 9, 4), Bar("Reacher", 6, 1, 11), Bar("Rope", -3, -5, -1)], "points"
        ),
        Picture("Tasks", "Two.", list(flat([0, 255])), ["dark <task>", "light task"]),
        Matrix("Mask", "Who sees whom.", ["a", "b"], ["a", "b"], [[True, False], [True, True]], "token", "seen"),
        reel(),
    ]
    claims = [
        Judged("It helps.", "confirmed", "Clearly.", "first", paper="+4 <points>.", numbers="+5 [+1, +9]."),
        Judged("Always.", "not run yet", "Run it.", "second"),
        Judged("Ours too.", "contradicted", "No.", "first", published=False),
    ]
    table = "| task | n |\n| --- | --: |\n| cube <b>x</b> | 5 |"
    judged = [claims[0], claims[2]]
    first = Section(
        "first", "First & foremost", "acid reproduce first", ["lewm on cube"], shown, table, table, "n: *so*", judged
    )
    second = Section("second", "Second", "acid reproduce second", judged=claims[1:2], empty=True)
    return Page("A page", "Some **text**.", [first, second], "By a rule.", "Made by a test.", hero=shown[1])
