"""Limits: tokens of clients, requests a second."""

from __future__ import annotations

import pytest

from acid.errors import AcidError
from acid.serving import Limits
from acid.serving.limits import Buckets, allowed


@pytest.mark.parametrize("header", ["Api-Key abc", "Bearer abc", "api-key abc", " Api-Key  abc "])
def test_the_right_token_is_let_in(header: str):
    assert allowed("abc", header)


@pytest.mark.parametrize(
    "header", [None, "", "abc", "Api-Key", "Api-Key ", "Api-Key abd", "Api-Key abc d", "Basic abc", "Api-Key ä"]
)
def test_others_are_not(header: str | None):
    assert not allowed("abc", header)


def test_without_a_token_everyone_is_let_in():
    assert allowed(None, None)


def test_a_burst_passes_then_the_rate():
    now = 0.0
    buckets = Buckets(Limits(rate=2.0, burst=3), clock=lambda: now)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0  # another address
    now = 0.25
    assert buckets.take("a") == pytest.approx(0.25)
    now = 0.5
    assert buckets.take("a") == 0
    assert buckets.take("a") > 0
    now = 100.0
    assert [buckets.take("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_an_address_is_forgotten_once_its_bucket_is_full():
    now = 0.0
    buckets = Buckets(Limits(rate=1.0, burst=2), clock=lambda: now)
    for number in range(1000):
        now += 10.0
        buckets.take(f"address {number}")
    assert len(buckets) == 1


@pytest.mark.parametrize("change", [{"connections": 0}, {"rate": -1.0}, {"idle_seconds": float("nan")}, {"batch": 0}])
def test_a_limit_that_makes_no_sense_is_named(change):
    with pytest.raises(AcidError, match=f"the limit {next(iter(change))} must be a positive number"):
        Limits(**change)
