"""Published folders: the same numbers as stable-worldmodel's own, and a clear refusal of everything broken or hostile.

The folders in `fixtures` were written by stable-worldmodel itself; `fixtures/make_peer_fixture.py` says how.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from acid import checkpoint, models
from acid.data import Episodes, EpisodeWriter, partition
from acid.errors import CheckpointError, DataError
from acid.integrations.published import convert, load_published, read_config
from acid.models import JepaWorldModel
from acid.training import fit, recipe
from acid.types import ActionScaler
from acid.verifier import Verifier

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ("lewm", "pldm")
PEER = ("stable_worldmodel", "stable_pretraining", "hydra", "omegaconf", "transformers")

# How transformers 4 and 5 spell the same parts of a ViT, independently of the code under test.
SPELLINGS = [
    ("encoder.encoder.layer.", "encoder.layers."),
    (".attention.attention.query.", ".attention.q_proj."),
    (".attention.attention.key.", ".attention.k_proj."),
    (".attention.attention.value.", ".attention.v_proj."),
    (".attention.output.dense.", ".attention.o_proj."),
    (".intermediate.dense.", ".mlp.fc1."),
    (".output.dense.", ".mlp.fc2."),
]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Le-WM that a test may break."""
    return Path(shutil.copytree(FIXTURES / "lewm", tmp_path / "lewm"))


def weights_of(folder: Path) -> Path:
    (file,) = folder.glob("weights*.pt")
    return file


def respell(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names of one spelling turned into the other."""
    old = any(key.startswith(SPELLINGS[0][0]) for key in state)
    renamed = {}
    for key, value in state.items():
        for before, after in SPELLINGS:
            key = key.replace(before, after) if old else key.replace(after, before)
        renamed[key] = value
    assert renamed.keys() != state.keys()
    return renamed


def assert_agrees(model: JepaWorldModel, expected: Path) -> None:
    """Embeddings, teacher-forced predictions and rollouts that outlast the history, against the stored ones."""
    told = {key: torch.from_numpy(value) for key, value in np.load(expected).items()}
    imagined = model.rollout(model.encode(told["pixels"][:, 0]), told["plans"])[..., 0, :]
    assert told["plans"].shape[2] > model.config.history
    pairs = [
        (model.embed(told["pixels"]), told["embeddings"]),
        (model.dynamics[0](told["embeddings"][:, :-1], told["actions"]), told["predictions"]),
        (imagined, told["imagined"]),
    ]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
        assert theirs.std(0).mean() > 0.05  # far above the tolerance: other inputs, clearly other outputs


@pytest.mark.parametrize("other_spelling", [False, True])
def test_it_computes_what_the_publisher_computes(name: str, other_spelling: bool, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURES / name, tmp_path / name))
    if other_spelling:
        file = weights_of(folder)
        torch.save(respell(torch.load(file, weights_only=True)), file)
    assert read_config(folder).kind == name
    assert_agrees(load_published(folder, action_scaler="identity"), FIXTURES / f"{name}.npz")


def test_the_fixtures_have_one_spelling_each() -> None:
    old = [any("attention.attention" in key for key in torch.load(weights_of(FIXTURES / name))) for name in NAMES]
    assert old == [False, True]


@pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in PEER), reason="needs stable-worldmodel itself"
)
def test_it_agrees_with_the_installed_stable_worldmodel(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(FIXTURES / "make_peer_fixture.py"), "--only", name, "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    assert_agrees(load_published(tmp_path / name, action_scaler="identity"), tmp_path / f"{name}.npz")


def test_a_loaded_model_is_ready_to_plan_with() -> None:
    scaler = ActionScaler((0.5, -0.5), (0.1, 0.2), frameskip=2)
    model = load_published(FIXTURES / "lewm", action_scaler=scaler)
    assert model.scaler == scaler
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_weights_stored_in_half_precision_load_as_single(folder: Path) -> None:
    state = torch.load(weights_of(folder))
    torch.save({k: v.half() if v.is_floating_point() else v for k, v in state.items()}, weights_of(folder))
    model = load_published(folder, action_scaler="identity")
    assert {p.dtype for p in model.parameters()} == {torch.float32}


class TestActionStatistics:
    def test_they_are_asked_for(self) -> None:
        with pytest.raises(CheckpointError, match=r"no action statistics: .*fit_scaler.* = 4, .*'identity'"):
            load_published(FIXTURES / "lewm")

    def test_they_must_fit_the_model(self) -> None:
        with pytest.raises(CheckpointError, match=r"actions of 4 numbers, the scaler makes 10 \(2 × frameskip 5\)"):
            load_published(FIXTURES / "lewm", action_scaler=ActionScaler((0.0, 0.0), (1.0, 1.0), frameskip=5))

    def test_identity_leaves_actions_alone(self) -> None:
        model = load_published(FIXTURES / "lewm", action_scaler="identity")
        actions = torch.randn(3, 4)
        assert torch.equal(model.scaler.normalise(actions), actions)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Actions that stable-worldmodel wrote."""
    return shutil.copy(FIXTURES / "actions.h5", tmp_path / "actions.h5")


class TestConvert:
    def test_the_checkpoint_is_the_published_model_with_the_statistics_of_the_data(
        self, name: str, data: Path, tmp_path: Path
    ) -> None:
        convert(FIXTURES / name, data, tmp_path / "ours", task="reacher", held_out=0.2)
        model = models.load(tmp_path / "ours")
        assert_agrees(model, FIXTURES / f"{name}.npz")
        theirs = np.load(FIXTURES / "actions.npz")
        np.testing.assert_allclose(model.scaler.mean, theirs["mean"], rtol=1e-9)
        np.testing.assert_allclose(model.scaler.std, theirs["std"], rtol=1e-9)
        assert model.scaler.frameskip == 2  # the model's four numbers are two actions
        stored = checkpoint.load(tmp_path / "ours")
        told = stored.metadata
        assert (stored.kind, told["model"], told["part"], told["task"]) == (name, name, "model", "reacher")
        assert told["partition"] == partition(Episodes(data)).as_dict()
        assert told["partition"]["held_out"] == 0.2
        assert told["data"] == {"file": "actions.h5"}

    def test_a_verifier_can_be_trained_on_it(self, tmp_path: Path) -> None:
        random = np.random.default_rng(0)
        with EpisodeWriter(tmp_path / "frames.h5") as writer:
            for _ in range(12):
                pixels = random.integers(256, size=(9, 16, 16, 3), dtype=np.uint8)
                writer.write({"pixels": pixels, "action": random.normal(size=(9, 2)).astype(np.float32)})
        convert(FIXTURES / "lewm", tmp_path / "frames.h5", tmp_path / "cell" / "model", held_out=0.2)
        found = recipe("verifier", "lewm")
        short = replace(found, loop=replace(found.loop, steps=2, batch_size=8))
        folder = fit(short, tmp_path / "frames.h5", tmp_path / "cell", device="cpu")
        assert Verifier.load(folder).scaler == models.load(tmp_path / "cell" / "model").scaler

    def test_it_does_not_overwrite_what_it_reads(self, folder: Path, data: Path) -> None:
        with pytest.raises(CheckpointError, match="is the published folder itself"):
            convert(folder, data, folder / ".." / folder.name)
        load_published(folder, action_scaler="identity")

    def test_a_dataset_of_other_actions_is_refused(self, folder: Path, tmp_path: Path) -> None:
        with EpisodeWriter(tmp_path / "three.h5") as writer:
            writer.write({"action": np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)})
        with pytest.raises(DataError, match=r"takes 4 numbers, which is no whole number of the actions \(3,\)"):
            convert(folder, tmp_path / "three.h5", tmp_path / "ours")


class TestBrokenFolders:
    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"no published checkpoint at .*nowhere"):
            load_published(tmp_path / "nowhere", action_scaler="identity")

    def test_no_config(self, folder: Path) -> None:
        (folder / "config.json").unlink()
        with pytest.raises(CheckpointError, match=r"has no config\.json"):
            load_published(folder, action_scaler="identity")

    @pytest.mark.parametrize("text", ["", '{"_target_": ', "[" * 100_000, "\x80"])
    def test_a_config_that_is_not_json(self, folder: Path, text: str) -> None:
        (folder / "config.json").write_text(text, encoding="latin-1")
        with pytest.raises(CheckpointError, match=r"config\.json is not valid JSON"):
            load_published(folder, action_scaler="identity")

    def test_no_weights(self, folder: Path) -> None:
        weights_of(folder).unlink()
        with pytest.raises(CheckpointError, match=r"has no weights\*\.pt"):
            load_published(folder, action_scaler="identity")

    def test_two_weights_are_a_choice(self, folder: Path) -> None:
        shutil.copy(weights_of(FIXTURES / "pldm"), folder / "weights_epoch_2.pt")
        with pytest.raises(CheckpointError, match=r"weights\.pt, weights_epoch_2\.pt: choose one"):
            load_published(folder, action_scaler="identity")
        with pytest.raises(CheckpointError, match=r"has no weights_epoch_3\.pt"):
            load_published(folder, action_scaler="identity", weights="weights_epoch_3.pt")
        assert_agrees(load_published(folder, action_scaler="identity", weights="weights.pt"), FIXTURES / "lewm.npz")
        assert_agrees(
            load_published(folder, action_scaler="identity", weights="weights_epoch_2.pt"), FIXTURES / "pldm.npz"
        )

    @pytest.mark.parametrize("kept", [0.0, 0.0001, 0.1, 0.5, 0.9, 0.999])
    def test_truncated_weights(self, folder: Path, kept: float) -> None:
        content = weights_of(folder).read_bytes()
        weights_of(folder).write_bytes(content[: int(kept * len(content))])
        with pytest.raises(CheckpointError, match=r"weights\.pt is truncated"):
            load_published(folder, action_scaler="identity")

    def test_something_else_by_that_name(self, folder: Path) -> None:
        weights_of(folder).write_text("version https://git-lfs.github.com/spec/v1\n")
        with pytest.raises(CheckpointError, match=r"weights\.pt is truncated, damaged or holds more than tensors"):
            load_published(folder, action_scaler="identity")

    @pytest.mark.parametrize("content", [[torch.zeros(2)], {"epoch": 3}, torch.zeros(2)])
    def test_tensors_without_names(self, folder: Path, content: object) -> None:
        torch.save(content, weights_of(folder))
        with pytest.raises(CheckpointError, match=r"weights\.pt must hold a state dict"):
            load_published(folder, action_scaler="identity")

    @pytest.mark.parametrize("shape", [(), (1,), (20, 21), (20, 20, 1), (0, 20)])
    @pytest.mark.parametrize(
        "key", ["encoder.layers.1.attention.k_proj.weight", "action_encoder.patch_embed.weight", "pred_proj.net.1.bias"]
    )
    def test_weights_of_another_shape(self, folder: Path, key: str, shape: tuple[int, ...]) -> None:
        torch.save(torch.load(weights_of(folder)) | {key: torch.zeros(shape)}, weights_of(folder))
        told = rf"does not fit config\.json .*{re.escape(key)} of shape {re.escape(str(list(shape)))} instead of \["
        with pytest.raises(CheckpointError, match=told):
            load_published(folder, action_scaler="identity")

    def test_weights_of_another_network(self, folder: Path) -> None:
        torch.save({"layer.weight": torch.zeros(3)}, weights_of(folder))
        with pytest.raises(CheckpointError, match=r"lacks action_encoder.* and has the unknown layer\.weight"):
            load_published(folder, action_scaler="identity")


class _Intruder:
    """Unpickling this makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("archive", [True, False])
def test_code_in_the_weights_is_named_and_not_run(folder: Path, tmp_path: Path, archive: bool) -> None:
    file, mark = weights_of(folder), tmp_path / "intruded"
    if archive:
        torch.save(torch.load(file) | {"encoder.layernorm.bias": _Intruder(mark)}, file)
    else:
        file.write_bytes(pickle.dumps(_Intruder(mark), protocol=2))
    with pytest.raises(CheckpointError, match=r"weights\.pt asks to import (posix|nt)\.mkdir and was not opened"):
        load_published(folder, action_scaler="identity")
    assert not mark.exists()
    with contextlib.suppress(RuntimeError):
        torch.load(file, weights_only=False)
    assert mark.exists()  # what a careless reader would have done
