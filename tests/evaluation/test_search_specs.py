"""A search as rows and file names know it: a task's usual one, sizes in its place, and back to a search."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid.errors import AcidError
from acid.evaluation import SearchSpec
from acid.planning import CEM, ICEM, MPPI, SEARCHES, Gradient, Shooting
from acid.tasks import Setup

SETUP = Setup(horizon=4, samples=40, iterations=6, elites=5)


def test_the_usual_search_is_the_tasks_own():
    assert SearchSpec.usual(SETUP) == SearchSpec("cem", 40, 6, 5, 4)
    assert SearchSpec.usual(SETUP).build() == CEM(40, 6, 5)
    assert SearchSpec.usual(SETUP, method="mppi").build() == MPPI(40, 6)
    assert SearchSpec.usual(SETUP, samples=20, elites=None, horizon=2) == SearchSpec("cem", 20, 6, 5, 2)
    assert SearchSpec.usual(SETUP, candidates="arc", repeats=3) == SearchSpec("cem", 40, 6, 5, 4, "arc", 3)


def test_a_search_without_iterations_draws_as_many_candidates_in_one_go():
    assert SearchSpec.usual(SETUP, method="shooting").build() == Shooting(240)
    assert SearchSpec.usual(SETUP, method="shooting").budget == SearchSpec.usual(SETUP).budget == 240


@pytest.mark.parametrize(
    ("method", "chosen", "message"),
    [
        ("mppi", {"elites": 3}, "the search 'mppi' has no elites; leave it out"),
        ("shooting", {"iterations": 2}, "the search 'shooting' has no iterations; leave it out"),
        ("cen", {}, "unknown search method 'cen'; did you mean 'cem'"),
        ("cem", {"samples": 3}, "elites"),
        ("cem", {"iterations": 0}, "iterations"),
        ("cem", {"horison": 2}, "the search 'cem' has no horison; did you mean 'horizon'"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(method, chosen, message):
    with pytest.raises(AcidError, match=message):
        SearchSpec.usual(SETUP, method=method, **chosen)


@pytest.mark.parametrize(
    "search",
    [
        CEM(8, 2, 3),
        CEM(8, 2, 3, std_init=2.0, tolerance=0.1),
        CEM(8, 2, 3, std_init=(1.0, 2.0)),
        ICEM(20, 3, 4, keep=0.5),
        MPPI(9, 2, temperature=0.1),
        Gradient(5, 7, learning_rate=0.3),
        Shooting(11),
    ],
    ids=str,
)
def test_a_search_is_described_and_built_again_also_from_json(search):
    spec = SearchSpec.of(search, horizon=3)
    again = SearchSpec.from_json(json.loads(json.dumps(spec.as_dict())))
    assert again == spec
    assert hash(again) == hash(spec)
    assert spec.build() == again.build() == search
    assert spec.horizon == 3


@given(st.sampled_from(sorted(SEARCHES)), st.integers(4, 50), st.integers(1, 4))
def test_every_method_comes_back(method, samples, repeats):
    spec = SearchSpec.of(SEARCHES[method](samples=samples, **({"elites": 2} if "elites" in names(method) else {})))
    assert (spec.method, spec.samples, spec.options) == (method, samples, {})
    assert SearchSpec.from_json(spec.as_dict()).build() == spec.build()


def names(method: str) -> set[str]:
    return {f.name for f in fields(SEARCHES[method])}


def test_labels_hold_what_makes_a_search_different():
    assert SearchSpec.of(CEM()).label == "cem-n300-j30-k30"
    assert SearchSpec.of(CEM(samples=30, elites=3, tolerance=0.1)).label == "cem-n30-j30-k3-tolerance0.1"
    assert SearchSpec.of(CEM(8, 2, 2, std_init=(0.5, 1.0))).label == "cem-n8-j2-k2-std_init[0.5,1.0]"
    assert SearchSpec.of(Shooting(9), repeats=3).label == "shooting-n9-r3"
    assert SearchSpec("cem", 80, 1, 5, 8, "arc", 3).label == "cem-n80-j1-k5-arc-r3"
    assert SearchSpec("cem", 80, 1, 5, 8, "arc", 3).name == "cem-n80-j1-k5-arc-r3-h8"
    assert SearchSpec.of(CEM(), horizon=2).name != SearchSpec.of(CEM(), horizon=3).name


def test_a_search_of_the_users_own_has_a_name_too():
    class Mine(CEM):
        pass

    assert SearchSpec.of(Mine(4, 1, 2)).label == "mine-n4-j1-k2"
    with pytest.raises(AcidError, match="unknown search method 'mine'"):
        SearchSpec.of(Mine(4, 1, 2)).build()


@pytest.mark.parametrize("content", [{"method": "cem"}, {"method": "cem", "samples": 3, "size": 1}, {}])
def test_what_is_not_a_search_is_refused(content):
    with pytest.raises(ValueError, match="search is not understood"):
        SearchSpec.from_json(content)


@dataclass(frozen=True)
class Walk:
    samples: int = 4


def test_a_spread_is_refused_by_a_search_without_one(monkeypatch):
    monkeypatch.setitem(SEARCHES, "walk", Walk)
    assert SearchSpec.usual(SETUP, method="walk").build() == Walk(240)
    with pytest.raises(AcidError, match="the search 'walk' has no std_init; leave it out"):
        SearchSpec.usual(SETUP, method="walk", std_init=2.0)


def test_an_option_that_the_search_does_not_have_is_named():
    with pytest.raises(AcidError, match="unknown option of the search 'cem' 'std'; did you mean 'std_init'"):
        SearchSpec("cem", 4, 1, 2, options={"std": 2.0}).build()
