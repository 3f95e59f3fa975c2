"""The guides and the README are true: every Python block runs, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from acid import ActionScaler
from acid.verifier import Directions

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WORD_BY_WORD = {"own-world-model.md", "own-data.md"}  # these take nothing for granted
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]+)[^)]*\)")


class PointModel:
    """What a page may take for granted as `model`: a point that moves by its action."""

    scaler = ActionScaler(mean=(0.0, 0.0), std=(0.1, 0.1))

    def encode(self, observation: Tensor) -> Tensor:
        return observation[:, None]

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        return (latent[:, None] + self.scaler.denormalise(actions).cumsum(2))[..., None, :]


class PointVerifier:
    """What a page may take for granted as `verifier`."""

    directions = Directions((0.0, 1.0), ((1.0, 0.0), (0.0, 1.0)))

    def infer(self, latent: Tensor, next_latent: Tensor) -> Tensor:
        return PointModel.scaler.normalise(next_latent - latent)[..., 0, :]


class PointEnvironment(gymnasium.Env):
    """What a page may take for granted as `env`: the point itself, observed as its position."""

    action_space = gymnasium.spaces.Box(-0.3, 0.3, (2,), np.float32)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1, 1, 2)
        return self.render(), {}

    def step(self, action):
        self.position = self.position + action
        return self.render(), 0.0, False, False, {}

    def render(self):
        return self.position.astype(np.float32)

    def get_state(self):
        return self.position

    def set_state(self, state):
        self.position = state


def blocks(page: Path) -> list[str]:
    """The Python blocks of a page, each moved to its own line so that a traceback points into the page."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in WORD_BY_WORD:
        monkeypatch.chdir(tmp_path)  # they may write files
    names: dict[str, object] = {"__name__": "page"}
    names |= (
        {}
        if page.name in WORD_BY_WORD
        else {
            "model": PointModel(),
            "verifier": PointVerifier(),
            "observation": torch.zeros(2, 2),
            "goal": torch.full((2, 2), 0.3),
            "env": PointEnvironment(),
        }
    )
    for code in blocks(page):
        exec(compile(code, str(page), "exec", dont_inherit=True), names)  # this file's __future__ is not theirs


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_files(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_guides_have_blocks_to_run() -> None:
    assert sum(len(blocks(page)) for page in PAGES) >= 8
