from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import nn

from acid import checkpoint
from acid.errors import CheckpointError
from acid.types import ActionScaler

SCALER = ActionScaler(mean=(0.1, -2.0), std=(1.5, 3.0), frameskip=5)


@dataclass(frozen=True)
class Inner:
    width: int
    kind: Literal["vit", "conv"] = "vit"


@dataclass(frozen=True)
class Outer:
    inner: Inner
    rate: float
    name: str = "a"
    sizes: tuple[int, ...] = (1, 2)
    pair: tuple[int, float] = (1, 2.0)
    other: Inner | None = None
    flag: bool = False
    notes: dict[str, int] = field(default_factory=dict)


CONFIG = Outer(inner=Inner(3, "conv"), rate=0.5, sizes=(4,), other=Inner(7), notes={"x": 1})


def module(width: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 2), nn.BatchNorm1d(2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "model"
    checkpoint.save(target, kind="lewm", config=CONFIG, state=module(), scaler=SCALER, metadata={"seed": 3})
    return target


def edit(folder: Path, **changes: Any) -> None:
    """Change entries of config.json; "REMOVE" takes one out, as the digest is in the first checkpoints."""
    path = folder / "config.json"
    content = json.loads(path.read_text()) | {"digest": "REMOVE"} | changes
    path.write_text(json.dumps({name: value for name, value in content.items() if value != "REMOVE"}))


def test_round_trip(tmp_path: Path) -> None:
    original = module()
    checkpoint.save(tmp_path, kind="lewm", config=CONFIG, state=original, scaler=SCALER, metadata={"seed": 3})
    loaded = checkpoint.load(tmp_path, "lewm")
    assert (loaded.kind, loaded.scaler, loaded.metadata) == ("lewm", SCALER, {"seed": 3})
    assert checkpoint.config_from(Outer, loaded.config) == CONFIG
    copy = module()
    checkpoint.load_state(copy, loaded)
    for name, value in original.state_dict().items():
        assert torch.equal(copy.state_dict()[name], value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_a_mapping_of_tensors_that_share_memory_without_scaler(tmp_path: Path) -> None:
    weight = torch.rand(4, 3)
    checkpoint.save(tmp_path, kind="x", config={}, state={"a": weight, "b": weight, "c": weight.T})
    loaded = checkpoint.load(tmp_path)
    assert loaded.scaler is None
    assert torch.equal(loaded.state["c"], weight.T)
    assert torch.equal(loaded.state["a"], loaded.state["b"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_for_storage_only(tmp_path: Path, dtype: torch.dtype) -> None:
    state = {"w": torch.rand(1000), "count": torch.tensor(70000)}
    checkpoint.save(tmp_path, kind="x", config={}, state=state, dtype=dtype)
    assert (tmp_path / "model.safetensors").stat().st_size < 2500
    loaded = checkpoint.load(tmp_path).state
    assert loaded["w"].dtype == torch.float32
    assert torch.equal(loaded["w"], state["w"].to(dtype).float())
    assert torch.equal(loaded["count"], state["count"])


def test_the_fingerprint_follows_all_that_changes_what_a_checkpoint_does(tmp_path: Path) -> None:
    def mark(value: float = 1.0, kind: str = "x", **options: Any) -> str:
        content = {"config": {}} | options
        checkpoint.save(tmp_path / "a", kind=kind, state={"w": torch.full((3,), value)}, **content)
        return checkpoint.fingerprint(tmp_path / "a")

    assert mark() == mark(metadata={"seen": "later"})
    others = [mark(1.1), mark(kind="y"), mark(config={"width": 2}), mark(scaler=SCALER)]
    assert len({mark(), *others}) == 5


def test_a_failed_save_keeps_the_old_checkpoint(folder: Path) -> None:
    before = checkpoint.load(folder)
    with pytest.raises(CheckpointError, match="must be JSON values"):
        checkpoint.save(folder, kind="lewm", config={"bad": object()}, state=module())
    after = checkpoint.load(folder)
    assert all(torch.equal(after.state[name], value) for name, value in before.state.items())
    assert len(list(folder.iterdir())) == 2


def test_missing_parts_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint folder at .*nowhere"):
        checkpoint.load(tmp_path / "nowhere")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors"):
        checkpoint.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        checkpoint.load(folder)


def test_a_foreign_kind_names_both(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="holds a 'lewm' checkpoint, not a 'verifier' one"):
        checkpoint.load(folder, "verifier")


def test_corrupt_json(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(CheckpointError, match=r"config\.json is not valid JSON"):
        checkpoint.load(folder)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match=r"config\.json is not valid JSON"):
        checkpoint.load(folder)


@pytest.mark.parametrize("kept", [0, 4, 60, -1])
def test_truncated_weights(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is truncated or damaged"):
        checkpoint.load(folder)


def test_weights_of_another_checkpoint(folder: Path, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "other", kind="lewm", config={}, state=module())
    (tmp_path / "other" / "model.safetensors").replace(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="from different checkpoints"):
        checkpoint.load(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "pldm"},
        {"config": {"width": 4}},
        {"scaler": None},
        {"scaler": {"mean": [0.0, 0.0], "std": [1.0, 1.5], "frameskip": 1}},
        {"weights": "0" * 64},
        {"digest": "0" * 64},
        {"digest": None},
    ],
)
def test_a_description_that_was_changed_is_noticed(folder: Path, changes: dict[str, Any]) -> None:
    content = json.loads((folder / "config.json").read_text())
    edit(folder, **{"digest": content["digest"]} | changes)
    with pytest.raises(CheckpointError, match=r"config\.json was changed after it was written"):
        checkpoint.load(folder)


def test_what_is_known_about_a_checkpoint_may_grow(folder: Path) -> None:
    checkpoint.annotate(folder, seen="later")
    assert checkpoint.load(folder).metadata == {"seed": 3, "seen": "later"}


def test_a_checkpoint_without_a_digest_still_loads(folder: Path) -> None:
    edit(folder)
    assert "digest" not in json.loads((folder / "config.json").read_text())
    assert checkpoint.load(folder).metadata == {"seed": 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "REMOVE"}, r"config\.json lacks kind"),
        ({"scaler": "REMOVE"}, r"config\.json lacks scaler"),
        ({"config": [1]}, "an object under 'config'"),
        ({"scaler": {"mean": [0.0]}}, r"action statistics .* needs mean, std and frameskip, got \['mean'\]"),
        ({"scaler": {"mean": [0.0], "std": [0.0], "frameskip": 1}}, "action dimension 0 has standard deviation"),
        ({"scaler": {"mean": "x", "std": [1.0], "frameskip": 1}}, r"ActionScaler\.mean must be"),
        ({"scaler": 3}, "must be an object"),
        ({"scaler": {"mean": [10**400], "std": [1.0], "frameskip": 1}}, r"ActionScaler\.mean\[0\] must be float"),
    ],
)
def test_incomplete_descriptions(folder: Path, changes: dict[str, Any], message: str) -> None:
    edit(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(folder)


def test_a_file_that_is_not_ours(folder: Path) -> None:
    (folder / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="must hold a JSON object"):
        checkpoint.load(folder)


def test_weights_that_do_not_fit_are_listed(folder: Path) -> None:
    loaded = checkpoint.load(folder)
    with pytest.raises(
        CheckpointError, match=r"do not fit Linear: they lack weight, bias and have the unexpected 0\.bias"
    ):
        checkpoint.load_state(nn.Linear(3, 2), loaded)
    with pytest.raises(CheckpointError, match=r"differ in shape at 0\.weight \[2, 3\] instead of \[2, 4\]"):
        checkpoint.load_state(module(4), loaded)


def test_json_values_become_the_annotated_types() -> None:
    built = checkpoint.config_from(Outer, {"inner": {"width": 1}, "rate": 1, "sizes": [3, 4], "pair": [1, 2]})
    assert built == Outer(inner=Inner(1), rate=1.0, sizes=(3, 4))
    assert isinstance(built.rate, float)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rat": 1.0}, "Outer has no setting 'rat'; did you mean 'rate'"),
        ({"inner": {"width": 1, "widht": 2}}, r"Outer\.inner has no setting 'widht'; did you mean 'width'"),
        ({"inner": {}}, r"Outer\.inner lacks the setting width"),
        ({"inner": 3}, r"Outer\.inner must be an object"),
        ({"inner": {"width": 1.5}}, r"Outer\.inner\.width must be int, got 1\.5"),
        ({"inner": {"width": True}}, r"Outer\.inner\.width must be int, got True"),
        ({"inner": {"width": 1, "kind": "mlp"}}, r"Outer\.inner\.kind must be .*'mlp'"),
        ({"rate": "fast"}, r"Outer\.rate must be float, got 'fast'"),
        ({"sizes": [1, "a"]}, r"Outer\.sizes\[1\] must be int"),
        ({"pair": [1]}, r"Outer\.pair must be"),
        ({"other": {"width": None}}, r"Outer\.other\.width must be int"),
        ({"flag": 1}, r"Outer\.flag must be bool"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        checkpoint.config_from(Outer, {"inner": {"width": 1}, "rate": 0.5} | changes)


def test_weights_that_are_not_finite_are_neither_written_nor_read(tmp_path: Path) -> None:
    broken = {"good": torch.zeros(2), "bad": torch.tensor([1.0, float("nan")])}
    with pytest.raises(CheckpointError, match=r"was not written: its weights bad hold NaN or infinite numbers"):
        checkpoint.save(tmp_path / "a", kind="test", config={}, state=broken)
    assert not (tmp_path / "a").exists()
    checkpoint.save(tmp_path / "b", kind="test", config={}, state={"bad": torch.zeros(2)})
    whole = (tmp_path / "b" / "model.safetensors").read_bytes()
    (tmp_path / "b" / "model.safetensors").write_bytes(whole[:-4] + b"\x00\x00\xc0\x7f")
    edit(tmp_path / "b", weights=checkpoint._digest(tmp_path / "b" / "model.safetensors"))
    with pytest.raises(CheckpointError, match="weights bad hold NaN"):
        checkpoint.load(tmp_path / "b")


@pytest.mark.parametrize("name", ["width", "depth", "heads"])
@pytest.mark.parametrize("size", [10**12, 10**6, 0, -1])
def test_a_configuration_of_absurd_sizes_is_refused_before_it_is_built(tmp_path: Path, name: str, size: int) -> None:
    from acid.verifier import TransformerSize, Verifier
    from acid.verifier.flow import FlowConfig

    Verifier(FlowConfig(3, 1, 2, TransformerSize(8, 1, 2)), ActionScaler((0.0, 0.0), (1.0, 1.0))).save(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    content["config"]["size"][name] = size
    edit(tmp_path, config=content["config"])
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        Verifier.load(tmp_path)


def test_both_files_have_the_mode_that_the_user_wants(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, kind="test", config={}, state={"a": torch.zeros(2)})
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
