"""A cell of navigation that is as small as it can be, trained for a moment on drives in one simulated world."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from small_navigation import LOOP, SIDE, TOKENS, WORLD_MODEL

from acid.data import EpisodeWriter
from acid.experiments import cell as cells
from acid.experiments import navigation_poses, setups
from acid.experiments.cell import Cell
from acid.models import compact, nwm
from acid.nn.lpips import load_lpips
from acid.planning import CEM
from acid.tasks.collect import Collection, record_episode
from acid.tasks.navigation import Navigation
from acid.training import navigation, tokenizer
from acid.training.navigation import NavigationRecipe, NavigationVerifierRecipe
from acid.training.tokenizer import TokenizerRecipe
from acid.verifier import FitConfig, TransformerSize


@dataclass(frozen=True)
class SmallCell:
    cell: Cell
    data: Path


@pytest.fixture(scope="session")
def drives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty short drives in one world, as `acid collect` would keep them."""
    path = tmp_path_factory.mktemp("navigation") / "drives.h5"
    task = Navigation(size=SIDE, worlds=1)
    task.episode_steps = 20  # type: ignore[misc]
    with EpisodeWriter(path, attributes={"collection": Collection("navigation", 20, SIDE).description()}) as writer:
        for index in range(20):
            writer.write(record_episode(task, 0, index))
    task.close()
    return path


@pytest.fixture(scope="session")
def trained(drives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the cell; half of the drives are held out."""
    out = tmp_path_factory.mktemp("cell")
    frames = navigation.open_frames(drives, SIDE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(compact.PRESETS, "tiny", lambda: TOKENS)
        patch.setitem(nwm.PRESETS, "tiny", lambda action_size: WORLD_MODEL)
        recipe = TokenizerRecipe("tiny", held_out=0.5, loop=LOOP)
        tokens = tokenizer.train_tokenizer(frames, out / "tokenizer", recipe, perceptual=load_lpips())
        dataset = navigation.tokenise(tokens, frames)
        navigation.train_navigation(
            dataset, tokens, out / "model", NavigationRecipe("nwm", "tiny", held_out=0.5, loop=LOOP)
        )
    small = NavigationVerifierRecipe(TransformerSize(12, 1, 2), (8,), FitConfig(steps=20, batch_size=16), held_out=0.5)
    navigation.train_navigation_verifier(dataset, tokens, out / "verifier", small)
    return out


@pytest.fixture
def small_cell(drives: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallCell:
    """The cell with a small search; its cases are kept apart from those that are shipped."""
    monkeypatch.setattr(cells, "ASSETS", tmp_path / "assets")
    monkeypatch.setattr(navigation_poses, "ROUNDS", 1)
    search = CEM(samples=6, iterations=1, elites=2)
    monkeypatch.setitem(setups.SETUPS, "navigation", replace(setups.SETUPS["navigation"], search=search))
    return SmallCell(Cell("navigation", "nwm", trained), drives)
