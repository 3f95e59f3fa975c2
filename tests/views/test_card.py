"""Model cards tell what the checkpoints tell, and the shipped ones are up to date."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from acid import checkpoint
from acid.errors import AcidError, CheckpointError
from acid.evaluation import Cell, shipped
from acid.evaluation.cells import ASSETS
from acid.views.card import CARD, write_card


@pytest.mark.parametrize("name", shipped())
def test_shipped_cards_are_what_the_command_writes(name: str, tmp_path: Path):
    task, model = name.split("/")
    written = write_card(Cell(task, model), out=tmp_path).read_text()
    assert written == (ASSETS / name / CARD).read_text()
    stored = checkpoint.load(ASSETS / name / "model").metadata
    assert (
        f"| `model` | the world model | {weights(ASSETS / name):,} | {stored['recipe']['loop']['steps']:,} |" in written
    )
    for told in ("verifier: error / action variance", "CPU minutes", f"acid collect {task} ", f"--task {task}"):
        assert told in written
    if name in ("pusht/lewm", "pusht/pldm", "cube/lewm", "cube/pldm", "reacher/pldm"):
        drawn = checkpoint.load(ASSETS / name / "decoder").metadata["validation"]
        share = drawn["error"] / drawn["error_of_mean_picture"]
        assert f"| decoder: squared error of drawing / that of the mean picture | {share:.3f} |" in written
        assert f"--seed 1 --out data/{task}-decoder.h5" in written  # it saw other episodes than the model
    assert written.count("# by an earlier recipe") == (name == "reacher/lewm")  # its decoder
    if model == "nwm":
        assert f"| psnr imagined | {stored['validation']['psnr_imagined_1']:.3g} |" in written
        assert "tokenizer: perceptual mean image" in written
        assert "of turn alone" in written
    else:
        assert f"{stored['validation']['imagined_1_of_still']:.3g}" in written
        assert "linear probe of" in written


def weights(folder: Path) -> int:
    return sum(value.numel() for value in checkpoint.load(folder / "model").state.values())


def test_a_card_goes_to_the_cell_or_to_the_users_folder(tmp_path: Path):
    assert write_card(Cell("reacher", "lewm", user=tmp_path)) == tmp_path / "reacher" / "lewm" / CARD
    own = shutil.copytree(ASSETS / "reacher" / "lewm", tmp_path / "own")
    (own / CARD).unlink()
    assert write_card(Cell("reacher", "lewm", own)) == own / CARD
    assert write_card(Cell("reacher", "lewm", own), out=tmp_path / "out").read_text() == (own / CARD).read_text()


def test_settings_that_are_not_the_recipes_own_are_in_the_command(tmp_path: Path):
    own = shutil.copytree(ASSETS / "reacher" / "lewm", tmp_path / "own")
    content = json.loads((own / "model" / "config.json").read_text())
    content["metadata"]["recipe"]["loop"]["learning_rate"] = 0.123
    (own / "model" / "config.json").write_text(json.dumps(content))
    assert "--loop.learning-rate 0.123" in write_card(Cell("reacher", "lewm", own)).read_text()


def test_models_that_were_not_trained_here_have_no_card(tmp_path: Path):
    own = shutil.copytree(ASSETS / "reacher" / "lewm", tmp_path / "own")
    content = json.loads((own / "model" / "config.json").read_text())
    content["metadata"]["data"] = {}
    (own / "model" / "config.json").write_text(json.dumps(content))
    with pytest.raises(AcidError, match="does not tell how it was trained: cards are for models trained here"):
        write_card(Cell("reacher", "lewm", own))


def test_nothing_is_written_for_a_cell_that_is_not_there(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"no checkpoint folder at .*model"):
        write_card(Cell("reacher", "lewm", tmp_path / "nowhere"))
    assert list(tmp_path.iterdir()) == []


def test_a_probe_is_kept_beside_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from acid.views import card

    monkeypatch.setattr(card, "probe", lambda model, data, task: {"mood": 0.25})
    cell = Cell("reacher", "lewm", user=tmp_path)
    written = write_card(cell, data=tmp_path / "data.h5", out=tmp_path / "out").read_text()
    assert "| linear probe of mood, R² | 0.250 |" in written
    assert write_card(cell, out=tmp_path / "out").read_text() == written  # the last probe is kept
