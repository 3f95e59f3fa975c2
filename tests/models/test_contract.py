"""What every kind of world model has, whatever its paper: the registry, fake inputs, a loss, a checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_vae import frozen

from acid import checkpoint, models
from acid.errors import AcidError, CheckpointError, ShapeError
from acid.models import Batch, FrozenEncoderModel, LearnedWorldModel
from acid.models.decoder import Decoder, DecoderConfig
from acid.models.keypoint_decoder import KeypointDecoder, KeypointDecoderConfig
from acid.models.token_decoder import TokenDecoder, TokenDecoderConfig
from acid.types import ActionScaler, WorldModel

SCALER = ActionScaler(mean=(0.5, -1.0, 0.0), std=(2.0, 3.0, 1.0))


@pytest.fixture(scope="module", params=sorted(models.KINDS))
def named(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, LearnedWorldModel]:
    torch.manual_seed(0)
    options = frozen(request.param, tmp_path_factory.mktemp("frozen"))
    return request.param, models.build(request.param, "lite", SCALER, **options)


def test_a_fake_input_can_be_encoded_imagined_and_compared(named: tuple[str, LearnedWorldModel]) -> None:
    _, model = named
    assert isinstance(model, WorldModel)
    model.eval()
    observation, goal, actions = model.fake_input(batch=2, candidates=3, horizon=2)
    assert goal.shape == (2, model.observation_size, model.observation_size, 3)
    assert all(torch.equal(a, b) for a, b in zip(model.fake_input(), model.fake_input(), strict=True))
    with torch.no_grad():
        latent, wanted = model.encode(observation), model.encode(goal)
        imagined = model.rollout(latent, actions)
    assert imagined.shape == (2, 3, 2, *wanted.shape[1:])
    assert imagined.isfinite().all()


def test_compiled_layers_imagine_the_same(named: tuple[str, LearnedWorldModel]) -> None:
    """Without a C++ compiler: torch traces the layers and runs what it traced. test_compiled.py goes all the way."""
    torch._dynamo.reset()  # it gives up on code that it has traced for too many other models
    model = copy.deepcopy(named[1]).eval()
    observation, _, actions = model.fake_input(batch=1, candidates=3, horizon=2)
    calls: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        calls.append(len(inputs))
        return graph.forward

    with torch.no_grad():
        latent = model.encode(observation)
        expected = model.rollout(latent, actions)
        model.compile(backend=backend)
        torch.testing.assert_close(model.rollout(latent, actions), expected)
    assert calls


def test_a_loss_is_made_for_a_model_and_takes_the_batch_that_its_kind_streams(
    named: tuple[str, LearnedWorldModel],
) -> None:
    name, model = named
    kind = models.KINDS[name]
    assert (kind.stream == "latents") == isinstance(model, FrozenEncoderModel)
    steps = model.config.history
    side = model.observation_size
    frames = torch.randint(256, (4, steps + 1, side, side, 3), dtype=torch.uint8)
    if kind.stream == "latents":
        with torch.no_grad():
            frames = model.encode(frames.flatten(0, 1)).unflatten(0, (4, steps + 1))
    loss = kind.loss(kind.loss_config(), model.train())
    losses = loss(model, Batch(frames, torch.randn(4, steps, SCALER.size)))
    losses["loss"].backward()
    assert any(parameter.grad is not None for parameter in model.parameters())


def test_a_checkpoint_loads_onto_a_device(named: tuple[str, LearnedWorldModel], tmp_path: Path) -> None:
    name, model = named
    models.save(model, name, tmp_path, {})
    loaded = models.load(tmp_path, device="cpu")
    assert next(loaded.parameters()).device == torch.device("cpu")
    assert (type(loaded), loaded.config) == (type(model), model.config)
    with pytest.raises(AcidError, match="device 'gpu'"):
        models.load(tmp_path, device="gpu")


def test_a_scaler_of_another_size_is_refused() -> None:
    kind = models.KINDS["lewm"]
    with pytest.raises(ShapeError, match="actions of size 4, the scaler makes 3"):
        kind.model(kind.presets["lite"](4), SCALER)


def test_a_decoder_is_loaded_by_its_kind(tmp_path: Path) -> None:
    for made in (
        Decoder(DecoderConfig(4, 16, 8, 8, 1, 2, 8)),
        KeypointDecoder(KeypointDecoderConfig(4, 16, hidden=8, width=8)),
        TokenDecoder(TokenDecoderConfig(4, 2, (8, 4))),
    ):
        made.save(tmp_path / made.kind, {}, half_precision=True)
        assert type(models.load_decoder(tmp_path / made.kind)) is type(made)
    checkpoint.save(tmp_path / "other", kind="readout", config={}, state={"x": torch.zeros(1)})
    with pytest.raises(CheckpointError, match="holds a 'readout' checkpoint, not a decoder"):
        models.load_decoder(tmp_path / "other")
