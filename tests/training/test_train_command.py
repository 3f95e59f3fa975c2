"""`acid train`: every number of every recipe is an option; what is not honoured is an error."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import h5py
import pytest

from acid import checkpoint, models, training
from acid.cli.train import train_command
from acid.errors import AcidError
from acid.workers import alone_in

CELLS = [(part, model) for model, kind in models.KINDS.items() for part in kind.parts]


def names(settings: Any, above: str = "") -> list[str]:
    """Every option of nested settings that have a value."""
    found = []
    for entry in fields(settings):
        value, name = getattr(settings, entry.name), f"{above}{entry.name.replace('_', '-')}"
        if is_dataclass(value):
            found += names(value, f"{name}.")
        elif value is not None and not (not above and name in ("part", "model", "scale")):
            found.append(f"--{name}")
    return found


@pytest.mark.parametrize(("part", "model"), CELLS)
def test_help_lists_every_setting_of_the_recipe(
    part: str, model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for scale in models.KINDS[model].presets:
        with pytest.raises(SystemExit) as stopped:
            train_command([part, model, "--scale", scale, "--help"])
        assert stopped.value.code == 0
        shown = capsys.readouterr().out.split()
        wanted = names(training.recipe(part, model, scale))
        assert [name for name in wanted if name not in shown] == []
        assert "--loop.steps" in wanted


def test_help_without_a_choice_lists_parts_and_models(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train_command(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*training.PARTS, *models.KINDS))


def test_any_number_can_be_set(blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--data", str(blobs), "--out", str(tmp_path / "cell"), "--task", "blobs", "--device", "cpu"]
    changed = ["--loss.sigreg", "0.09", "--loss.pooled", "False", "--network.latent-size", "16", "--held-out", "0.3"]
    changed += ["--network.encoder.keypoints", "0", "--loop.betas", "0.8", "0.9", "--loop.learning-rate=1e-4"]
    train_command(["model", "lewm", *short, *changed, "--steps", "2", "--batch-size", "4", "--precision", "float32"])
    shown = capsys.readouterr().out
    assert "imagined_5_of_still" in shown
    assert f"wrote {tmp_path / 'cell' / 'model'}" in shown
    told = checkpoint.load(tmp_path / "cell" / "model").metadata
    recipe = told["recipe"]
    assert (told["task"], told["partition"]["held_out"]) == ("blobs", 0.3)
    assert (recipe["loss"]["sigreg"], recipe["loss"]["pooled"], recipe["network"]["latent_size"]) == (0.09, False, 16)
    assert recipe["network"]["encoder"]["keypoints"] == 0
    loop = recipe["loop"]
    assert (loop["steps"], loop["batch_size"], loop["betas"], loop["precision"]) == (2, 4, [0.8, 0.9], "float32")
    assert loop["learning_rate"] == 1e-4

    train_command(["verifier", "lewm", *short, "--epochs", "0.1", "--network.width", "24", "--loop.batch-size", "64"])
    assert "held-out error / action variance" in capsys.readouterr().out
    recipe = checkpoint.load(tmp_path / "cell" / "verifier").metadata["recipe"]
    assert recipe["network"]["width"] == 24
    assert recipe["loop"]["steps"] < 20


def test_two_cannot_train_in_one_folder(blobs: Path, tmp_path: Path) -> None:
    short = ["--data", str(blobs), "--out", str(tmp_path / "cell"), "--task", "blobs", "--device", "cpu"]
    with (
        alone_in(tmp_path / "cell" / "model" / "run"),
        pytest.raises(AcidError, match="run is being written by another process: wait for it or stop it first"),
    ):
        train_command(["model", "lewm", *short, "--steps", "1"])


@pytest.mark.parametrize(("name", "size"), [("predictor.width", 3 * 10**11), ("latent-size", 10**12)])
def test_a_network_that_no_memory_holds_is_refused(name: str, size: int, blobs: Path, tmp_path: Path) -> None:
    short = ["--data", str(blobs), "--out", str(tmp_path / "cell"), "--task", "blobs", "--device", "cpu"]
    with pytest.raises(AcidError, match=r"the network of this model cannot be used: .* more than this machine"):
        train_command(["model", "lewm", *short, f"--network.{name}", str(size)])
    assert not (tmp_path / "cell" / "model" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model", "lewm", "--steps", "5", "--loop.steps", "6"], r"--loop\.steps \(or --steps\) is given twice"),
        (["model", "lewm", "--seed=1", "--seed", "2"], r"--loop\.seed \(or --seed\) is given twice"),
        (["model", "lewm", "--scale", "lite", "--scale", "paper"], "--scale is given twice"),
        (["model", "lewm", "--epochs", "1", "--steps", "5"], "--epochs and --steps both say how long to train"),
        (["--task", "reacher", "model", "lewm"], "say first what to train, `acid train PART MODEL ...`, not '--task'"),
        (["modell", "lewm"], "unknown part of a cell 'modell'; did you mean 'model'"),
        (["model", "lewn"], "unknown world model 'lewn'; did you mean 'lewm'"),
        (["model", "lewm", "--scale", "light"], "unknown scale 'light'"),
        (["model", "--data", "nowhere.h5"], "nowhere.h5: there is no dataset"),
        (["model", "lewm", "--data", "nowhere.h5", "--device", "gpu"], "device 'gpu'"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str) -> None:
    with pytest.raises(AcidError, match=message):
        train_command(arguments)


@pytest.mark.parametrize(
    "option", [["--los.sigreg", "1"], ["--change", "1"], ["--steps", "0"], ["--loss.variance", "1"]]
)
def test_options_that_a_recipe_does_not_have_are_refused(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        train_command(["model", "lewm", *option])
    assert stopped.value.code == 2
    assert option[0].strip("-").split(".")[-1] in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("told", "asked", "message"),
    [
        ("{}", ["--task", "../../evil"], r"the name of a task '\.\./\.\./evil' cannot be part of a file's name"),
        ('{"task": "../evil"}', [], "the name of a task '../evil' cannot be"),
        ('{"task": 5}', [], "is said to be of the task 5"),
        ('{"task": "this:Zen"}', [], "is said to be of the task 'this:Zen': pass --task to use that class"),
        ('{"task": "this:Zen"}', ["--task", "blobs"], "is of the task 'this:Zen', not of 'blobs'"),
    ],
)
def test_a_task_chooses_no_path_and_a_dataset_no_code(
    told: str, asked: list[str], message: str, blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File(blobs, "a") as file:
        file.attrs["collection"] = told
    with pytest.raises(AcidError, match=message):
        train_command(["model", "lewm", "--data", str(blobs), "--steps", "1", "--device", "cpu", *asked])
    assert "this" not in sys.modules  # which prints a poem when it is imported
    assert not list(tmp_path.rglob("*.safetensors"))


def test_the_task_of_a_dataset_is_not_taken_for_another(
    blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train_command(["model", "lewm", "--data", str(blobs), "--steps", "1", "--batch-size", "4", "--device", "cpu"])
    assert "wrote runs/blobs/lewm/model" in capsys.readouterr().out
    assert checkpoint.load(Path("runs/blobs/lewm/model")).metadata["task"] == "blobs"
