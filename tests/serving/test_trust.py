"""The flag: what it promises holds, and what it does not know it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from acid.errors import AcidError, DataError
from acid.serving import Trust, calibrate
from acid.serving import trust as trust_module


def calibrated(good, bad, level=0.1) -> Trust:
    flags = [True] * len(good) + [False] * len(bad)
    return calibrate([*good, *bad], flags, score="consistency", level=level, made_with={"lam": 0.1})


def test_good_plans_are_flagged_no_more_often_than_promised(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trust_module, "RESAMPLES", 2)  # of an interval that plays no part here
    random, shares = np.random.default_rng(0), []
    for _ in range(300):
        trust = calibrated(random.exponential(size=40), random.exponential(2.0, size=10))
        fresh = random.exponential(size=500)
        shares.append(np.mean([not trust.holds({"consistency": value}) for value in fresh]))
    assert 0.05 < np.mean(shares) <= 0.1 + 0.005  # the promise, and not by flagging nothing


def test_a_score_that_tells_catches_what_is_bad_and_says_so():
    trust = calibrated(np.arange(50.0), np.arange(100.0, 120.0))
    assert trust.caught == 1
    assert trust.tells
    assert trust.auroc == (1, 1, 1)
    assert "do not rely" not in str(trust)


def test_a_score_that_knows_nothing_says_so():
    random = np.random.default_rng(0)
    trust = calibrated(random.normal(size=60), random.normal(size=40))
    assert not trust.tells
    assert "that may be chance, so do not rely on the flag" in str(trust)


def test_too_few_good_plans_for_the_level_are_an_error():
    with pytest.raises(AcidError, match=r"18 of 20 plans kept their word, but a level of 0\.05 needs at least 19"):
        calibrated(np.arange(18.0), [5.0, 6.0], level=0.05)
    assert calibrated(np.arange(19.0), [], level=0.05).threshold == 18


@pytest.mark.parametrize(("scores", "level"), [([np.nan] * 40, 0.1), (np.zeros(40), 0.0), (np.zeros(40), 1.0)])
def test_mistakes_are_named(scores, level):
    with pytest.raises(AcidError, match=r"finite score|level must be"):
        calibrate(scores, [True] * 40, score="consistency", level=level, made_with={})


def test_it_is_stored_and_read_again(tmp_path: Path):
    trust = calibrated(np.arange(50.0), np.arange(30.0, 60.0))
    trust.save(tmp_path / "a" / "trust.json")
    assert Trust.load(tmp_path / "a" / "trust.json") == trust


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"score": 1}', "\0"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str):
    (tmp_path / "trust.json").write_text(text)
    with pytest.raises(DataError, match=r"trust\.json .*; run acid calibrate again"):
        Trust.load(tmp_path / "trust.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [("threshold", 10**400), ("threshold", None), ("level", "x"), ("caught", [1]), ("auroc", [0.5]), ("made_with", 3)],
)
def test_values_that_make_no_sense_are_named(tmp_path: Path, name: str, value: object):
    calibrated(np.arange(50.0), np.arange(30.0, 60.0)).save(tmp_path / "trust.json")
    content = json.loads((tmp_path / "trust.json").read_text()) | {name: value}
    (tmp_path / "trust.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"is not a calibration .*; run acid calibrate again"):
        Trust.load(tmp_path / "trust.json")
