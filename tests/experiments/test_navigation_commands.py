"""From a dataset to a cell of navigation and its card, by the commands a user types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_navigation import LOOP, TOKENS, WORLD_MODEL

from acid import cli
from acid.models import compact, nwm
from acid.training import navigation, tokenizer
from acid.verifier import TransformerSize


@pytest.fixture(autouse=True)
def small_lite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lite recipes of networks as small as those of the tests."""
    monkeypatch.setitem(compact.PRESETS, "lite", lambda: TOKENS)
    monkeypatch.setitem(nwm.PRESETS, "lite", lambda action_size: WORLD_MODEL)
    for recipes in (tokenizer.RECIPES, navigation.RECIPES):
        monkeypatch.setitem(recipes, "lite", replace(recipes["lite"], loop=replace(LOOP, steps=3)))
    small = replace(navigation.VERIFIER_RECIPES["lite"], size=TransformerSize(12, 1, 2), channels=(8,))
    monkeypatch.setitem(navigation.VERIFIER_RECIPES, "lite", small)


def test_a_cell_is_trained_part_by_part_and_described(drives: Path, tmp_path: Path, capsys) -> None:
    where = ["--task", "navigation", "--model", "nwm", "--data", str(drives), "--out", str(tmp_path / "cell")]
    cli.main(["train", "tokenizer", *where])
    assert "perceptual_mean_image" in capsys.readouterr().out
    cli.main(["train", "model", *where])
    assert "accuracy_shuffled_actions" in capsys.readouterr().out
    cli.main(["train", "verifier", *where, "--steps", "3"])
    assert "ten steps" in capsys.readouterr().out
    cli.main(["card", "navigation", "--model", "nwm", "--folder", str(tmp_path / "cell")])
    card = (tmp_path / "cell" / "README.md").read_text()
    for told in (
        "# NWM with CompACT lite on Navigation",
        "acid collect navigation --episodes 20 --size 32 --seed 0",
        "acid train tokenizer --task navigation --model nwm --steps 3",
        "tokenizer: perceptual mean image",
        "| accuracy copied |",
        "| perceptual imagined |",
        "verifier: the same of turn alone",
    ):
        assert told in card


def test_parts_that_a_cell_does_not_have_are_named(drives: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "policy", "--task", "navigation", "--model", "nwm", "--data", str(drives)])
    assert "unknown part of a cell of nwm 'policy'; known: 'model', 'tokenizer', 'verifier'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["train", "tokenizer", "--data", str(drives)])
    assert "unknown part of a cell of lewm 'tokenizer'" in capsys.readouterr().err
