"""One rule turns intervals into a verdict."""

from __future__ import annotations

import pytest

from acid.evaluation import Paired
from acid.tables.verdict import Verdict, on_gains


def gain(low: float, high: float) -> Paired:
    return Paired(10, (low + high) / 2, low, high, 0.5, "test")


@pytest.mark.parametrize(
    ("intervals", "kind"),
    [
        ([(0.1, 0.3), (0.01, 0.2)], "confirmed"),
        ([(0.1, 0.3), (-0.1, 0.2)], "not confirmed"),
        ([(0.1, 0.3), (-0.3, -0.1)], "contradicted"),
        ([(0.0, 0.3)], "not confirmed"),
    ],
)
def test_a_verdict_needs_every_interval_and_is_mirrored_where_less_is_better(intervals, kind):
    gains = {f"g{k}": gain(*ends) for k, ends in enumerate(intervals)}
    mirrored = {name: gain(-g.high, -g.low) for name, g in gains.items()}
    assert on_gains(gains).kind == on_gains(mirrored, lower_is_better=True).kind == kind


def test_the_reason_tells_the_numbers_unless_it_is_given():
    found = on_gains({"cube": gain(0.1, 0.3)})
    assert str(found) == "confirmed at this scale; cube +20.0% [+10.0%, +30.0%]."
    assert on_gains({"cube": gain(0.1, 0.3)}, lower_is_better=True).reason == "cube +0.200 [+0.100, +0.300]."
    assert on_gains({"cube": gain(0.1, 0.3)}, reason="so.") == Verdict("confirmed", "so.")
