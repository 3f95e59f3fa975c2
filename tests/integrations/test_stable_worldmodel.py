"""The mapping of names and layouts between our network and stable-worldmodel's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from acid.errors import CheckpointError
from acid.integrations.stable_worldmodel import Transformers, from_peer_state, to_peer_state
from acid.models import JepaConfig, JepaWorldModel
from acid.models.jepa import PRESETS
from acid.nn.causal import CausalConfig
from acid.nn.encoders import ViTConfig
from acid.types import ActionScaler

CONFIG = JepaConfig(
    action_size=4,
    latent_size=12,
    projector_width=20,
    action_width=5,
    encoder=ViTConfig(image_size=16, patch=8, width=12, depth=2, heads=3, mlp_width=24),
    predictor=CausalConfig(frames=3, width=12, depth=2, heads=2, head_width=8, mlp_width=24),
)


@pytest.fixture
def model() -> JepaWorldModel:
    torch.manual_seed(0)
    model = JepaWorldModel(CONFIG, ActionScaler((0.0, 0.0), (1.0, 1.0), 2))
    for tensor in model.state_dict().values():  # every number different, so that a mix-up shows
        tensor.copy_(torch.rand(tensor.shape) if tensor.is_floating_point() else torch.tensor(7))
    return model.requires_grad_(False)


@pytest.mark.parametrize("transformers", [4, 5])
def test_there_and_back_is_the_identity(model: JepaWorldModel, transformers: Transformers) -> None:
    back = from_peer_state(to_peer_state(model, transformers=transformers), CONFIG)
    state = model.state_dict()
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], value) for name, value in state.items())


def test_separate_projections_are_the_parts_of_the_fused_one(model: JepaWorldModel) -> None:
    old, new = (to_peer_state(model, transformers=version) for version in (4, 5))
    assert len(old) == len(new)
    fused = model.state_dict()["encoder.blocks.1.qkv.weight"]
    for part, (before, after) in enumerate((("query", "q"), ("key", "k"), ("value", "v"))):
        expected = fused[12 * part : 12 * (part + 1)]
        assert torch.equal(old[f"encoder.encoder.layer.1.attention.attention.{before}.weight"], expected)
        assert torch.equal(new[f"encoder.layers.1.attention.{after}_proj.weight"], expected)


def test_the_action_embedding_becomes_a_convolution(model: JepaWorldModel) -> None:
    assert to_peer_state(model)["action_encoder.patch_embed.weight"].shape == (5, 4, 1)


def test_missing_and_unknown_weights_are_named(model: JepaWorldModel) -> None:
    state = to_peer_state(model)
    state["decoder.weight"] = state.pop("predictor.pos_embedding")
    with pytest.raises(CheckpointError, match=r"lacks predictor\.pos_embedding and has the unknown decoder\.weight"):
        from_peer_state(state, CONFIG)


def test_weights_of_another_size_are_named(model: JepaWorldModel) -> None:
    wider = replace(CONFIG, projector_width=24)
    with pytest.raises(CheckpointError, match=r"projector\.net\.0\.weight of shape \[20, 12\] instead of \[24, 12\]"):
        from_peer_state(to_peer_state(model), wider)


def test_parts_that_planning_does_not_read_are_tolerated(model: JepaWorldModel) -> None:
    state = to_peer_state(model) | {
        "encoder.pooler.dense.weight": torch.zeros(12, 12),
        "idm.net.0.weight": torch.zeros(5, 24),
    }
    assert from_peer_state(state, CONFIG).keys() == model.state_dict().keys()


def test_networks_it_does_not_have_are_refused() -> None:
    with pytest.raises(CheckpointError, match="not a 'conv' encoder and width 96 for latents of 32"):
        from_peer_state({}, PRESETS["lite"](10))
    with pytest.raises(CheckpointError, match="one predictor, not an ensemble of 3"):
        from_peer_state({}, replace(CONFIG, ensemble=3))
