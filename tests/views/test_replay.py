"""An episode as pictures: what was imagined above what happened."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acid.evaluation import Bench, Cell, Protocol, SearchSpec, condition
from acid.evaluation.cells import ASSETS
from acid.views.episodes import executed_frames, imagined_frames, replay, residuals, sheet_rows

SPEC = SearchSpec("cem", 6, 2, 2, horizon=2)
PROTOCOL = Protocol(budget=20, episodes=1)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(Cell("reacher", "lewm"), SPEC, PROTOCOL)


@pytest.fixture(scope="module")
def film(bench: Bench):
    (instance,) = bench.cell.instances(PROTOCOL)[:1]
    episode = replay(bench, "acid", 0.2, instance)
    assert episode.film is not None
    assert episode.steps == 20
    return episode.film


def test_the_same_instance_is_played_the_same_way(bench: Bench, film):
    (instance,) = bench.cell.instances(PROTOCOL)[:1]
    again = replay(bench, "acid", 0.2, instance)
    assert again.film is not None
    np.testing.assert_array_equal(np.stack(again.film.frames), np.stack(film.frames))
    other = replay(bench, "original", None, instance)
    assert other.final_error != again.final_error


def test_frames_are_those_after_whole_model_steps(bench: Bench, film):
    executed, imagined = executed_frames(film, bench), imagined_frames(film, bench)
    assert len(executed) == 4  # twenty steps of five
    np.testing.assert_array_equal(executed, np.stack(film.frames)[5::5])
    assert imagined is not None
    assert (imagined.shape, imagined.dtype) == (executed.shape, np.uint8)
    assert len(residuals(film)) == 4


def test_rows_tell_residuals_and_errors(bench: Bench, film):
    imagined, executed = sheet_rows("acid", film, bench)
    assert (imagined.kind, executed.kind) == ("imagined", "executed")
    assert imagined.condition == executed.condition == condition("acid").look
    assert list(imagined.notes) == [f"residual {value:.1f}" for value in residuals(film)]
    assert executed.notes[-1] == f"{film.errors[-1]:.2f} rad"


def test_an_episode_that_ends_within_a_step_shows_its_end(bench: Bench, film):
    short = replace(film, frames=film.frames[:3], errors=film.errors[:3])
    np.testing.assert_array_equal(executed_frames(short, bench), np.stack(film.frames[2:3]))
    rows = sheet_rows("acid", short, bench)
    assert [len(row.frames) for row in rows] == [1, 1]  # beside the one imagined step that was begun
    assert rows[-1].notes == [f"{film.errors[2]:.2f} rad"]


def test_without_a_decoder_only_what_happened_is_shown(film, tmp_path: Path):
    folder = shutil.copytree(ASSETS / "reacher" / "lewm", tmp_path / "cell", ignore=shutil.ignore_patterns("decoder"))
    (only,) = sheet_rows("acid", film, Bench(Cell("reacher", "lewm", folder), SPEC, PROTOCOL))
    assert only.kind == "executed"


def test_an_agent_that_imagines_nothing_has_nothing_to_show(bench: Bench):
    (instance,) = bench.cell.instances(PROTOCOL)[:1]
    film = replay(bench, "noop", None, instance).film
    assert film is not None
    assert imagined_frames(film, bench) is None
    assert residuals(film).tolist() == []
    assert len(sheet_rows("noop", film, bench)) == 1


def test_smaller_pictures_are_enlarged_to_the_frames(bench: Bench, film):
    """Some decoders draw at half the side."""
    small = Bench(bench.cell, bench.spec, bench.protocol)
    assert bench.decoder is not None
    drawn = bench.decoder
    small.__dict__["decoder"] = lambda latents: drawn(latents)[:, ::2, ::2]
    frames = imagined_frames(film, small)
    assert frames is not None
    assert frames.shape[1:] == film.frames[0].shape
    np.testing.assert_array_equal(frames[:, ::2, ::2], frames[:, 1::2, 1::2])
