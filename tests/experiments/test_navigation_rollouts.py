"""Whether consistency tells where imagination fails: measured on rollouts, and the statistics on made-up ones."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from acid.errors import DataError
from acid.evaluation.path_cases import load_cases
from acid.experiments import navigation_rollouts
from acid.experiments.navigation import NavigationTable
from acid.experiments.navigation_planning import Parts
from acid.experiments.navigation_poses import Locator
from acid.experiments.navigation_rollouts import Rollouts, draw, imagine, measure, relations, run_rollouts
from acid.tasks.navigation import Navigation


def made_up(follow: float, *, n: int = 60, seed: int = 0) -> Rollouts:
    """Errors that grow with the step, and residuals that follow them by so much."""
    rng = np.random.default_rng(seed)
    error = np.exp(rng.normal(size=(n, 8)))
    residual = np.stack([error**follow * np.exp(0.1 * rng.normal(size=error.shape)), *rng.random((2, n, 8))], -1)
    small = np.zeros((n, 8))
    return Rollouts(
        tuple(f"c{k}" for k in range(n)),
        {"model": "m"},
        residual=residual,
        residual_true=0.1 * residual,
        strayed=residual[..., 0],
        strayed_true=0.1 * residual[..., 0],
        lpips=error,
        lpips_tokens=error,
        lpips_floor=small,
        psnr=-error,
        psnr_floor=small,
        place=error,
        place_floor=small,
        way=np.cumsum(rng.random((n, 8)), 1),
        departure=np.stack([error] * 3, -1),
    )


@pytest.fixture
def table(small_cell, tmp_path: Path) -> NavigationTable:
    made = NavigationTable(tmp_path / "results", 4, small_cell.cell.folder, small_cell.data, select=2)
    made._draw_cases()
    return made


def test_frames_that_are_imagined_perfectly_differ_by_the_tokenizer_alone(table: NavigationTable) -> None:
    parts = Parts.load(table.cell)
    case = load_cases(table.cell.cases_file("test"), table._protocol("test"), "navigation")[0]
    with closing(Navigation(size=32, worlds=1)) as task:
        rollout = imagine(parts, case, 0, task)
        assert rollout.latents.shape == (9, 4, 3)
        assert torch.equal(rollout.latents[0], rollout.encoded[0])
        measured, perfect, turned = (
            measure(parts, one, Locator(parts, task, case.world, torch.Generator().manual_seed(0)))
            for one in (
                rollout,
                replace(rollout, latents=rollout.encoded),
                replace(rollout, actions=rollout.actions + torch.tensor([0.0, 0.0, 0.5])),
            )
        )
    np.testing.assert_array_equal(perfect["residual"], perfect["residual_true"])
    np.testing.assert_array_equal(perfect["strayed"], perfect["strayed_true"])
    np.testing.assert_array_equal(perfect["lpips"], perfect["lpips_floor"])
    np.testing.assert_allclose(perfect["lpips_tokens"], 0, atol=1e-6)
    for name in ("residual", "departure"):
        np.testing.assert_allclose(turned[name][:, :2], measured[name][:, :2], rtol=1e-4)
        assert (turned[name][:, 2] > measured[name][:, 2]).any()


def test_rollouts_are_kept_and_made_anew_for_other_cases(table: NavigationTable, monkeypatch) -> None:
    made = run_rollouts(table.cell, table._protocol("test"), table.results)
    assert made.residual.shape == (4, 8, 3)
    scale = np.array(Parts.load(table.cell).verifier.scaler.std[:2])  # type: ignore[union-attr]
    first = np.sqrt((made.residual[:, 0, :2] * scale**2).sum(-1))  # after one step a path is a step
    np.testing.assert_allclose(made.strayed[:, 0], first, rtol=1e-3)
    asked = []
    monkeypatch.setattr(navigation_rollouts, "imagine", lambda *_: asked.append(1) or pytest.fail("rolled out again"))
    kept = run_rollouts(table.cell, table._protocol("test"), table.results)
    np.testing.assert_allclose(kept.lpips, made.lpips, atol=1e-5)
    with pytest.raises(pytest.fail.Exception):
        run_rollouts(table.cell, replace(table._protocol("test"), episodes=3), table.results)
    assert asked


def test_pictures_and_figures_are_drawn(table: NavigationTable, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are no rollouts"):
        table.draw(tmp_path)
    run_rollouts(table.cell, table._protocol("test"), table.results)
    paths = draw(table.cell, table._protocol("test"), table.results, tmp_path / "figures")
    assert [path.stem for path in paths] == [
        f"navigation-{name}" for name in ("consistency", "following", "path", "rollouts", "tokenizer")
    ]
    for path in paths:
        assert np.asarray(Image.open(path)).std() > 0


def test_a_residual_that_follows_the_error_is_found_and_noise_is_not() -> None:
    by = {(r.residual, r.error): r for r in relations(made_up(1.0))}
    for error in ("LPIPS", "place", "step"):
        found = by["forward", error]
        for relation in (found.pooled, found.within, found.by_trajectory, found.given_way):
            assert relation.low > 0.8
            assert relation.n == 60
        assert by["turn", error].pooled.low < 0 < by["turn", error].pooled.high
        if error != "step":  # each number of an action with its own
            assert by["ACID's", error].pooled.low > 0.5


def test_what_only_grows_with_the_step_is_not_found_within_a_step() -> None:
    rollouts, grows = made_up(0.0), np.arange(1.0, 9)
    rollouts = replace(rollouts, residual=rollouts.residual + grows[None, :, None], lpips=rollouts.lpips + 5 * grows)
    rollouts = replace(rollouts, way=np.tile(grows, (len(rollouts.way), 1)))
    found = {(r.residual, r.error): r for r in relations(rollouts)}["ACID's", "LPIPS"]
    assert found.pooled.low > 0.5
    for remaining in (found.within, found.given_way):
        assert remaining.low < 0.05
        assert remaining.high < 0.3


def test_steps_above_what_true_frames_give_are_not_followed(tmp_path: Path) -> None:
    rollouts = made_up(0.0)
    assert (rollouts.score_true > rollouts.threshold).mean() == pytest.approx(0.05, abs=0.01)
    text = "\n".join(navigation_rollouts.describe(rollouts, relations(rollouts)))
    assert "100%, 100%" in text
    rollouts.save(tmp_path / "r.json")
    loaded = Rollouts.load(tmp_path / "r.json")
    np.testing.assert_allclose(loaded.residual, rollouts.residual, atol=1e-5)
    assert loaded.cases == rollouts.cases
