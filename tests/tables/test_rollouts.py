"""Whether consistency tells where imagination fails: measured on rollouts, and the statistics on made-up ones."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from acid.errors import DataError
from acid.evaluation import Bench, Cell, Protocol, SearchSpec, plan_seed
from acid.evaluation.kits import NavigationKit
from acid.tables import locator as locator_module
from acid.tables import rollouts as rollouts_module
from acid.tables.locator import Locator
from acid.tables.rollouts import FIGURES, Rollouts, describe, draw, imagine, measure, relations, run_rollouts
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
def bench(navigation_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(locator_module, "ROUNDS", 1)
    monkeypatch.setattr(locator_module, "POSES", 8)
    protocol = Protocol.of(Navigation.setup, episodes=2)
    return Bench(Cell("navigation", "nwm", navigation_folder), SearchSpec("cem", 6, 1, 2, 8, "arc"), protocol)


def ignore(done: int, total: int) -> None:
    pass


def test_frames_that_are_imagined_perfectly_differ_by_the_tokenizer_alone(bench: Bench) -> None:
    kit, instance = bench.kit, bench.cell.instances(bench.protocol)[0]
    assert isinstance(kit, NavigationKit)
    with closing(Navigation(size=32, worlds=1)) as task:
        rollout = imagine(kit, instance, bench.protocol, task)
        assert rollout.latents.shape == (9, 4, 3)
        assert torch.equal(rollout.latents[0], rollout.encoded[0])
        variants = (
            rollout,
            replace(rollout, latents=rollout.encoded),
            replace(rollout, actions=rollout.actions + torch.tensor([0.0, 0.0, 0.5])),
        )
        world = int(instance.start_state[0])
        measured, perfect, turned = (
            measure(kit, one, Locator(kit, task, world, torch.Generator().manual_seed(0))) for one in variants
        )
    np.testing.assert_array_equal(perfect["residual"], perfect["residual_true"])
    np.testing.assert_array_equal(perfect["strayed"], perfect["strayed_true"])
    np.testing.assert_array_equal(perfect["lpips"], perfect["lpips_floor"])
    np.testing.assert_allclose(perfect["lpips_tokens"], 0, atol=1e-6)
    for name in ("residual", "departure"):
        np.testing.assert_allclose(turned[name][:, :2], measured[name][:, :2], rtol=1e-4)
        assert (turned[name][:, 2] > measured[name][:, 2]).any()


def test_an_instance_is_imagined_as_it_is_planned_for(bench: Bench) -> None:
    """The same frames and the same random numbers as those of an evaluation."""
    instance = bench.cell.instances(bench.protocol)[0]
    assert isinstance(bench.kit, NavigationKit)
    with closing(Navigation(size=32, worlds=1)) as task:
        rollout = imagine(bench.kit, instance, bench.protocol, task)
        task.set_state(instance.goal_state)
        np.testing.assert_array_equal(rollout.true[-1].numpy(), task.render())
        frames = []
        for state in instance.seen:
            task.set_state(state)
            frames.append(task.render())
    start = bench.model.encode(torch.from_numpy(np.stack(frames))[None])
    seeds = [plan_seed(0, instance.id, 0)]
    again = bench.model.rollout(start, rollout.actions[None, None], seeds=seeds)[0, 0]
    assert torch.equal(again, rollout.latents[1:])


def test_rollouts_are_kept_and_made_anew_for_other_instances(bench: Bench, tmp_path: Path, monkeypatch) -> None:
    made = run_rollouts(bench, tmp_path, ignore)
    assert made.residual.shape == (2, 8, 3)
    scale = np.array(bench.kit.verifier.scaler.std[:2])
    first = np.sqrt((made.residual[:, 0, :2] * scale**2).sum(-1))  # after one step a path is a step
    np.testing.assert_allclose(made.strayed[:, 0], first, rtol=1e-3)
    asked = []
    monkeypatch.setattr(rollouts_module, "imagine", lambda *_: asked.append(1) or pytest.fail("rolled out again"))
    kept = run_rollouts(bench, tmp_path, ignore)
    np.testing.assert_allclose(kept.lpips, made.lpips, atol=1e-5)
    with pytest.raises(pytest.fail.Exception):
        run_rollouts(Bench(bench.cell, bench.spec, replace(bench.protocol, episodes=1)), tmp_path, ignore)
    assert asked


def test_pictures_and_figures_are_drawn(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there are no rollouts; run `acid reproduce navigation`"):
        draw(bench, tmp_path, tmp_path)
    run_rollouts(bench, tmp_path, ignore)
    paths = draw(bench, tmp_path, tmp_path / "figures")
    assert [path.stem for path in paths] == [f"navigation-{name}" for name in FIGURES]
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


def test_steps_above_what_true_frames_give_are_not_followed() -> None:
    rollouts = made_up(0.0)
    assert (rollouts.score_true > rollouts.threshold).mean() == pytest.approx(0.05, abs=0.01)
    assert "100%, 100%" in "\n".join(describe(rollouts, []))


def test_rollouts_come_back_from_disk_and_incomplete_ones_are_refused(tmp_path: Path) -> None:
    rollouts, path = made_up(0.0), tmp_path / "new" / "r.json"
    rollouts.save(path)
    loaded = Rollouts.load(path)
    np.testing.assert_allclose(loaded.residual, rollouts.residual, atol=1e-5)
    assert (loaded.instances, loaded.checkpoints) == (rollouts.instances, rollouts.checkpoints)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in content.items() if name != "way"}))
    with pytest.raises(DataError, match=r"lacks way; delete it and run `acid reproduce navigation` again"):
        Rollouts.load(path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(DataError, match=r"is not valid JSON .*; delete it and run `acid reproduce navigation` again"):
        Rollouts.load(path)
