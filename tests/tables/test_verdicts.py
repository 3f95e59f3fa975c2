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


def test_the_reason_is_in_plain_words_and_the_numbers_are_beside_it():
    found = on_gains({"Cube": gain(0.1, 0.3)})
    assert str(found) == (
        "confirmed at this scale. The gain is certain. Differences in points of success: Cube +20.0 [+10.0, +30.0]."
    )
    errors = on_gains({"Rope": gain(-0.1, 0.3)}, lower_is_better=True, unit="metres", than="nothing")
    assert errors == Verdict(
        "not confirmed",
        "No gain is certain. For Rope the interval includes zero: "
        "10 episodes are too few to tell (the mean is no gain).",
        "Differences in metres: Rope +0.1 [-0.1, +0.3].",
    )
    lost = on_gains({"Cube": gain(0.1, 0.3), "Rope": gain(-0.3, -0.1)}, than="the policy")
    assert lost.reason == "1 of 2 gains for certain (Cube). Rope is worse than the policy for certain."


def test_too_few_episodes_are_told_from_what_is_the_same_and_from_what_the_paper_has():
    gains = {"a": gain(-0.1, 0.05), "b": gain(-0.1, 0.2), "c": gain(0.0, 0.0)}
    reason = on_gains(gains, published={"a": 8.0, "b": 8.0, "c": 0.0}).reason
    assert "For a and b the interval includes zero: 10 episodes are too few to tell (1 of 2 means are gains)." in reason
    assert "c is equal to Original in every episode." in reason
    assert reason.endswith("The paper's difference lies outside our interval for a (+8).")


def test_many_that_are_unclear_are_counted():
    reason = on_gains({f"g{k}": gain(-0.1, 0.2) for k in range(6)}).reason
    assert reason.startswith("No gain is certain. For 6 of them the interval includes zero")
