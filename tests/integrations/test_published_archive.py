"""Checkpoints without a description: read without running anything, or refused with a sentence about them."""

from __future__ import annotations

import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from acid.errors import CheckpointError
from acid.integrations.pickled import Shell, read_pickled, state_of
from acid.integrations.published import convert, load_published, read_config

FIXTURES = Path(__file__).parent / "fixtures"
PLDM = FIXTURES / "pldm" / "weights_epoch_2.pt"


def as_module(state: dict[str, Tensor]) -> nn.Module:
    """Modules that hold these weights under these names, as a pickled object of the publisher's classes does."""
    root = nn.Module()
    for name, value in state.items():
        *path, last = name.split(".")
        module = root
        for part in path:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module._modules[part]
        module.register_buffer(last, value)
    root.encoder.encoder.layer._modules["0"].num_attention_heads = 2  # as the classes of the publisher remember it
    root.predictor.transformer.layers._modules["0"].attn.heads = 3
    return root


@pytest.fixture
def state() -> dict[str, Tensor]:
    return torch.load(PLDM, weights_only=True)


@pytest.fixture
def archive(state: dict[str, Tensor], tmp_path: Path) -> Path:
    folder = tmp_path / "pldm"
    folder.mkdir()
    training = nn.Module()
    training.add_module("model", as_module(state))
    torch.save(training, folder / "pldm_epoch_2_object.ckpt")
    return folder


def test_an_object_is_read_without_its_classes(archive: Path) -> None:
    kind, config = read_config(archive)
    assert (kind, config) == ("pldm", read_config(FIXTURES / "pldm").config.__class__(**{**vars(config)}))
    told = np.load(FIXTURES / "pldm.npz")
    model = load_published(archive, action_scaler="identity")
    pixels, plans = torch.from_numpy(told["pixels"]), torch.from_numpy(told["plans"])
    imagined = model.rollout(model.encode(pixels[:, 0]), plans)[..., 0, :]
    torch.testing.assert_close(imagined, torch.from_numpy(told["imagined"]), rtol=0, atol=1e-5)


def test_it_becomes_a_checkpoint_of_ours(archive: Path, tmp_path: Path) -> None:
    data = shutil.copy(FIXTURES / "actions.h5", tmp_path / "actions.h5")
    model = convert(archive, data, tmp_path / "ours")
    assert model.scaler.frameskip == 2


def test_weights_wrapped_by_lightning(state: dict[str, Tensor], tmp_path: Path) -> None:
    wrapped = {"state_dict": {f"model.{name}": value for name, value in state.items()}, "epoch": 2, "callbacks": {}}
    folder = Path(shutil.copytree(FIXTURES / "pldm", tmp_path / "pldm"))
    torch.save(wrapped, folder / "weights_epoch_2.pt")
    plain = load_published(FIXTURES / "pldm", action_scaler="identity").state_dict()
    found = load_published(folder, action_scaler="identity").state_dict()
    assert all(torch.equal(found[name], value) for name, value in plain.items())


def test_weights_alone_have_heads_of_64_numbers(state: dict[str, Tensor], archive: Path) -> None:
    torch.save({"state_dict": {f"model.{k}": v for k, v in state.items()}}, archive / "pldm_weight.ckpt")
    config = read_config(archive).config  # weights come first, being smaller
    assert (config.encoder.heads, config.predictor.heads) == (1, 1)
    assert (config.encoder.width, config.encoder.depth, config.encoder.image_size) == (20, 2, 16)
    assert (config.action_size, config.latent_size, config.predictor.frames) == (4, 16, 3)
    assert read_config(archive, "pldm_epoch_2_object.ckpt").config.predictor.heads == 3


def test_several_epochs_are_a_choice(archive: Path) -> None:
    shutil.copy(archive / "pldm_epoch_2_object.ckpt", archive / "pldm_epoch_3_object.ckpt")
    with pytest.raises(CheckpointError, match=r"choose one with weights=\.\.\."):
        load_published(archive, action_scaler="identity")


@pytest.mark.parametrize("new", [True, False], ids=["archive", "legacy"])
def test_a_file_of_modules_and_optimisers(tmp_path: Path, new: bool) -> None:
    """As DINO-WM writes them."""
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ModuleDict({"a": nn.LayerNorm(2)}))
    content = {"epoch": 7, "predictor": module, "predictor_optimizer": torch.optim.AdamW(module.parameters())}
    torch.save(content, tmp_path / "model_7.pth", _use_new_zipfile_serialization=new)
    found = read_pickled(tmp_path / "model_7.pth")
    assert found["epoch"] == 7
    assert isinstance(found["predictor_optimizer"], Shell)
    weights = state_of(found["predictor"])
    assert weights.keys() == module.state_dict().keys()
    assert all(torch.equal(weights[name], value) for name, value in module.state_dict().items())


class Intruder:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("new", [True, False], ids=["archive", "legacy"])
def test_code_in_a_file_is_named_and_not_run(tmp_path: Path, new: bool) -> None:
    file, mark = tmp_path / "model.pth", tmp_path / "intruded"
    torch.save({"predictor": Intruder(mark)}, file, _use_new_zipfile_serialization=new)
    with pytest.raises(CheckpointError, match=r"model\.pth asks to import (posix|nt)\.mkdir and was not opened"):
        read_pickled(file)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["eval", "exec", "getattr", "__import__"])
def test_names_that_only_look_like_data_are_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "model.pth"
    file.write_bytes(b"\x80\x02c__builtin__\n" + name.encode() + b"\nX\x04\x00\x00\x00True\x85R.")
    with pytest.raises(CheckpointError, match=r"was not opened|truncated, damaged"):
        read_pickled(file)


def build(name: str, state: Any) -> bytes:
    """A pickle that names something of torch and then sets its attributes."""
    return b"\x80\x02c" + name.encode() + b"\n" + pickle.dumps(state, 2)[2:-1] + b"b."


@pytest.mark.parametrize("name", ["torch._utils\n_rebuild_tensor_v2", "torch._utils\n_rebuild_parameter"])
def test_nothing_that_a_file_names_is_changed(tmp_path: Path, name: str) -> None:
    before = torch._utils._rebuild_tensor_v2.__defaults__
    archive_with(tmp_path / "model.pth", build(name, (None, {"__defaults__": (1, 2), "_function": 3})))
    with pytest.raises(CheckpointError, match=r"model\.pth asks to change (__defaults__|_function) and was not opened"):
        read_pickled(tmp_path / "model.pth")
    assert torch._utils._rebuild_tensor_v2.__defaults__ is before


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [(0, (10**12,), (1,)), (0, (10**12,), (0,)), (5, (2,), (10,)), (-1, (2,), (1,)), (0, (2, 2), (-1, 1))],
    ids=["large", "repeated", "beyond", "before", "backwards"],
)
def test_tensors_are_made_of_what_is_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    kept = torch.Tensor.__reduce_ex__

    def lie(self: Tensor, protocol: int) -> Any:
        function, (storage, *_) = kept(self, protocol)
        return function, (storage, offset, size, stride, False, {})

    with monkeypatch.context() as lying:
        lying.setattr(torch.Tensor, "__reduce_ex__", lie)
        torch.save({"a": torch.arange(8.0)}, tmp_path / "model.pth")
    with pytest.raises(CheckpointError, match=r"model\.pth claims a tensor of .* in 8 numbers and was not opened"):
        read_pickled(tmp_path / "model.pth")


def test_a_file_cannot_ask_for_memory(tmp_path: Path) -> None:
    archive_with(tmp_path / "model.pth", b"\x80\x02ctorch\nFloatStorage\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R.")
    with pytest.raises(CheckpointError, match="truncated, damaged"):
        read_pickled(tmp_path / "model.pth")


def archive_with(file: Path, content: bytes) -> None:
    """A file of torch whose pickle is this."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("model/data.pkl", content)
        archive.writestr("model/version", "3\n")
        archive.writestr("model/byteorder", "little")


@pytest.mark.parametrize("kept", [0.0, 0.2, 0.9])
def test_damaged_files(archive: Path, kept: float) -> None:
    file = archive / "pldm_epoch_2_object.ckpt"
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(CheckpointError, match=r"_object\.ckpt is truncated"):
        load_published(archive, action_scaler="identity")


def test_something_else_is_told_apart(tmp_path: Path) -> None:
    torch.save({"state_dict": {"layer.weight": torch.zeros(2)}}, tmp_path / "a_weight.ckpt")
    with pytest.raises(CheckpointError, match="does not hold the weights of a Le-WM or PLDM"):
        load_published(tmp_path, action_scaler="identity")
