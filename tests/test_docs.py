"""The guides and the README are true: Python blocks run, commands are understood, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
import tyro
from torch import Tensor

from acid import ActionScaler, cli
from acid.verifier import Directions

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WORD_BY_WORD = {"own-world-model.md", "own-data.md"}  # these take nothing for granted
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDED = {"tiny"}  # a world model that a reader of Extending adds
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
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


CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b|\bTODO\b|\bTBD\b|\bXXX\b")


def placeholders(text: str) -> list[str]:
    """Words such as SOME_NUMBER outside code: what somebody meant to fill in."""
    return PLACEHOLDER.findall(CODE.sub("", text))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_nothing_is_left_to_fill_in(page: Path) -> None:
    assert placeholders(page.read_text(encoding="utf-8")) == []


def test_a_placeholder_is_found_outside_code_only() -> None:
    assert placeholders("| told, n TOLD_N | `OMP_NUM_THREADS` |\n```sh\nMUJOCO_GL=egl\n```\nTODO") == ["TOLD_N", "TODO"]


def commands(page: Path) -> list[list[str]]:
    """The `acid` lines of a page's shell blocks, as arguments; what a shell would do with the output is cut off."""
    lines = [line for block in SHELL.findall(page.read_text(encoding="utf-8")) for line in block.splitlines()]
    found = [shlex.split(line.partition(" > ")[0], comments=True)[1:] for line in lines if line.startswith("acid ")]
    return [arguments for arguments in found if not ADDED & set(arguments)]


class Parsed:
    """A command that was understood and is not run."""

    def __init__(self, command: object) -> None:
        self._command = command

    def __getattr__(self, name: str) -> object:
        return (lambda *_: None) if name in ("run", "train") else getattr(self._command, name)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_the_command_line_understands_what_a_page_tells_it(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = tyro.cli
    monkeypatch.setattr(tyro, "cli", lambda *given, **options: Parsed(parse(*given, **options)))
    refused = []
    for arguments in commands(page):
        try:
            cli.main(arguments)
        except SystemExit as stopped:  # help ends with 0, a mistake with something else
            refused += [arguments] if stopped.code else []
    assert refused == []


def test_the_guides_have_blocks_to_run() -> None:
    assert sum(len(blocks(page)) for page in PAGES) >= 8
