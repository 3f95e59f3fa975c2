"""Published configurations: known names become our sizes, and whatever would be another network is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acid.errors import CheckpointError
from acid.integrations.published import load_published
from acid.integrations.published_config import KINDS, parse
from acid.models.jepa import PRESETS
from acid.nn.encoders import ViTConfig

FIXTURE = Path(__file__).parent / "fixtures" / "lewm"
TINY: dict[str, Any] = json.loads((FIXTURE / "config.json").read_text())

# Arguments that do not change what a trained network computes.
HARMLESS = {"encoder.pretrained", "encoder.use_mask_token", "predictor.emb_dropout"}


def paper(modules: str, predictor: str, target: str) -> dict[str, Any]:
    """The published sizes, as the configuration of a project spells them."""
    norm = {"_target_": "torch.nn.BatchNorm1d", "_partial_": True}
    mlp = {"_target_": f"{modules}.MLP", "input_dim": 192, "output_dim": 192, "hidden_dim": 2048, "norm_fn": norm}
    return {
        "_target_": target,
        "encoder": {
            "_target_": "stable_pretraining.backbone.utils.vit_hf",
            "size": "tiny",
            "patch_size": 14,
            "image_size": 224,
            "pretrained": False,
            "use_mask_token": False,
        },
        "predictor": {
            "_target_": f"{modules}.{predictor}",
            "num_frames": 3,
            "input_dim": 192,
            "hidden_dim": 192,
            "output_dim": 192,
            "depth": 6,
            "heads": 16,
            "mlp_dim": 2048,
            "dim_head": 64,
            "dropout": 0.1,
            "emb_dropout": 0.0,
        },
        "action_encoder": {"_target_": f"{modules}.Embedder", "input_dim": 10, "emb_dim": 192},
        "projector": mlp,
        "pred_proj": mlp,
    }


def leaves(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        yield from leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *parents, last = path.split(".")
    result = inner = copy.deepcopy(config)
    for key in parents:
        inner = inner[key]
    inner[last] = value
    return result


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (paper("stable_worldmodel.wm.lewm.module", "Predictor", "stable_worldmodel.wm.lewm.LeWM"), "lewm"),
        (paper("stable_worldmodel.wm.pldm.module", "Predictor", "stable_worldmodel.wm.pldm.pldm.PLDM"), "pldm"),
        (paper("module", "ARPredictor", "jepa.JEPA") | {"embed_dim": 192, "history_size": 3}, "lewm"),
        (paper("stable_worldmodel.wm.lewm.module", "ARPredictor", "stable_worldmodel.wm.lewm.module.JEPA"), "lewm"),
    ],
)
def test_the_published_sizes_are_our_paper_preset(config: dict[str, Any], kind: str) -> None:
    assert parse(config, "config.json") == (kind, PRESETS["paper"](10))
    assert parse({"seed": 3072, "idm": {}, "model": config}, "config.json") == (kind, PRESETS["paper"](10))


def test_every_known_name_is_a_kind_of_ours() -> None:
    assert {parse(TINY | {"_target_": target}, "config.json").kind for target in KINDS} == {"lewm", "pldm"}


def test_what_is_left_out_has_the_defaults_of_the_peer() -> None:
    config = changed(TINY, "projector.input_dim", 24)
    config["encoder"] = {"_target_": TINY["encoder"]["_target_"], "size": "small", "hidden_size": 24}
    for path in ("predictor.dim_head", "predictor.dropout", "predictor.output_dim", "pred_proj.output_dim"):
        part, name = path.split(".")
        del config[part][name]
    parsed = parse(config, "config.json").config
    before = parse(TINY, "config.json").config
    assert parsed == replace(
        before,
        encoder=ViTConfig(image_size=224, patch=16, width=24, depth=12, heads=6, mlp_width=4 * 384),
        predictor=replace(before.predictor, head_width=64, dropout=0.0),
    )


@pytest.mark.parametrize("path", [path for path, _ in leaves(TINY) if path not in HARMLESS])
def test_no_argument_is_overlooked(path: str) -> None:
    with pytest.raises(CheckpointError, match=path.rsplit(".", 1)[-1].replace("_target_", "unheard.Of")):
        parse(changed(TINY, path, "unheard.Of"), "config.json")


@pytest.mark.parametrize("path", [path for path, value in leaves(TINY) if type(value) is int])
@pytest.mark.parametrize("wrong", [0, -1, 2.0, True, 10**12, "???", [8]])
def test_sizes_are_sensible_whole_numbers(path: str, wrong: Any) -> None:
    with pytest.raises(CheckpointError, match=rf"{path.split('.')[-1]} must be a whole number .* got"):
        parse(changed(TINY, path, wrong), "config.json")


@pytest.mark.parametrize(("path", "size"), [(path, value) for path, value in leaves(TINY) if type(value) is int])
def test_sizes_that_are_not_those_of_the_weights_are_noticed(tmp_path: Path, path: str, size: int) -> None:
    (tmp_path / "weights.pt").write_bytes((FIXTURE / "weights.pt").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(changed(TINY, path, size + 9)))
    with pytest.raises(CheckpointError):
        load_published(tmp_path, action_scaler="identity")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (
            "stable_worldmodel.wm.PreJEPA",
            r"'stable_worldmodel\.wm\.PreJEPA'.*known are .*wm\.pldm\.PLDM",
        ),
        ("os.system", r"'os\.system', which cannot be loaded; known are stable_worldmodel\.wm\.lewm\.LeWM"),
        (None, "names a _target_"),
        (["jepa.JEPA"], "names a _target_"),
    ],
)
def test_other_models_are_named_with_those_that_are_known(target: Any, told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        parse(TINY | {"_target_": target}, "config.json")


@pytest.mark.parametrize("content", [None, [], "jepa.JEPA", {}, {"model": {}}, {"kind": "lewm", "config": {}}])
def test_other_files_are_refused(content: Any) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json must be an object that names a _target_"):
        parse(content, "config.json")


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("projector", None, "has no projector"),
        ("pred_proj.norm_fn", None, "pred_proj has no norm_fn"),
        ("projector.norm_fn._target_", "torch.nn.LayerNorm", r"norm_fn is a 'torch\.nn\.LayerNorm'"),
        ("projector.act_fn", {"_target_": "torch.nn.ReLU", "_partial_": True}, "act_fn is set"),
        ("encoder.size", ["tiny"], r"size is \['tiny'\], not one of"),
        ("encoder.size", "gigantic", "size is 'gigantic', not one of tiny, small"),
        ("encoder.hidden_act", "relu", "hidden_act is 'relu'; only 'gelu'"),
        ("encoder.layer_norm_eps", 1e-6, "layer_norm_eps is 1e-06; only 1e-12"),
        ("encoder.num_attention_heads", 3, "width 20 with 3 heads"),
        ("encoder.hidden_size", 24, r"several widths.*encoder\.hidden_size 24, projector\.input_dim 20"),
        ("predictor.hidden_dim", 24, r"a latent several widths.*predictor\.hidden_dim 24, predictor\.input_dim 16"),
        ("pred_proj.hidden_dim", 30, r"projector\.hidden_dim 26, pred_proj\.hidden_dim 30"),
        ("predictor.dropout", 1.5, "dropout must be a number"),
        ("action_encoder.mlp_scale", 2, "mlp_scale is 2; only 4"),
        ("predictor.num_experts", 4, "predictor sets num_experts"),
        ("ensemble", 5, r"config\.json sets ensemble, which our network does not have"),
    ],
)
def test_what_our_network_cannot_express_is_said(path: str, value: Any, told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        parse(changed(TINY, path, value), "config.json")


def test_a_single_head_as_wide_as_the_predictor_is_said() -> None:
    config = changed(changed(TINY, "predictor.heads", 1), "predictor.dim_head", 16)
    with pytest.raises(CheckpointError, match="single head"):
        parse(config, "config.json")
