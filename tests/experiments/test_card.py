"""Model cards tell what the checkpoints tell, and the shipped ones are up to date."""

import shutil

import pytest

from acid import checkpoint
from acid.experiments.card import CARD, write_card
from acid.experiments.cell import ASSETS, Cell

SHIPPED = sorted(f"{path.parent.name}/{path.name}" for path in ASSETS.glob("*/*") if (path / "model").is_dir())


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_cards_are_what_the_command_writes(name, tmp_path):
    task, model = name.split("/")
    shutil.copytree(ASSETS / name, tmp_path / "cell")
    written = write_card(Cell(task, model, tmp_path / "cell")).read_text()
    assert written == (ASSETS / name / CARD).read_text()
    stored = checkpoint.load(ASSETS / name / "model").metadata
    assert f"--steps {stored['recipe']['loop']['steps']}" in written
    for told in ("verifier: error / action variance", "CPU minutes", "acid collect"):
        assert told in written
    if model == "nwm":
        assert f"| psnr imagined | {stored['validation']['psnr_imagined_1']:.3g} |" in written
        assert "tokenizer: perceptual mean image" in written
        assert "of turn alone" in written
    else:
        assert f"{stored['validation']['imagined_1_of_still']:.3g}" in written
        assert "linear probe of" in written
