"""Every world model encodes, imagines and learns on the device that it is on: nothing stays behind on the CPU."""

from __future__ import annotations

import pytest
import torch
from fake_cuda import CUDA, as_cuda, cuda_tensor, fake_cuda
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from acid import models
from acid.models import KINDS, Batch, LearnedWorldModel
from acid.models.compact import CompactLoss, CompactLossConfig, CompactTokenizer, lite
from acid.models.dinowm import DinoWorldModel
from acid.types import ActionScaler
from acid.verifier import ActionFlow, FlowConfig, TransformerSize, flow_matching_loss

SIZES = {"dinowm": 4, "nwm": 3}  # numbers of an environment action, where it is not 2


def model_of(kind: str) -> LearnedWorldModel:
    torch.manual_seed(0)
    numbers = SIZES.get(kind, 2)
    return models.build(kind, "lite", ActionScaler((0.0,) * numbers, (1.0,) * numbers))


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_and_imagining_stay_on_the_device(kind: str) -> None:
    model = model_of(kind).eval().requires_grad_(False)
    observation, _, actions = model.fake_input()
    with fake_cuda() as mode, torch.no_grad():
        moved = as_cuda(model, mode)
        if isinstance(moved, DinoWorldModel):  # its frozen encoder is not part of the module, but moves when it looks
            network = moved.encoder.network = as_cuda(moved.encoder.network, mode)
            network.to = {CUDA: network}.__getitem__
        latents = moved.encode(cuda_tensor(observation, mode))
        imagined = moved.rollout(latents, cuda_tensor(actions, mode))
        assert latents.device == imagined.device == CUDA
        assert imagined.shape[:3] == actions.shape[:3]


def batch_of(kind: str, model: LearnedWorldModel) -> Batch:
    """Two windows, as training streams them to this kind."""
    steps, side = model.config.history, model.observation_size
    frames = torch.randint(256, (2, steps + 1, side, side, 3), dtype=torch.uint8)
    if KINDS[kind].stream == "latents":
        frames = model.encode(frames.flatten(0, 1)).unflatten(0, (2, steps + 1))
    return Batch(frames, torch.randn(2, steps, model.scaler.size))


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_step_stays_on_the_device(kind: str) -> None:
    model = model_of(kind).train()
    loss, batch = KINDS[kind].loss(KINDS[kind].loss_config(), model), batch_of(kind, model)
    with fake_cuda() as mode:
        moved, on_device = as_cuda(model, mode), as_cuda(loss, mode)
        inputs = Batch(cuda_tensor(batch.frames, mode), cuda_tensor(batch.actions, mode))
        if kind == "nwm":  # learns from as many tokens as are hidden, a number that has to be read back
            with pytest.raises(DynamicOutputShapeException):
                on_device(moved, inputs)
            return
        losses = on_device(moved, inputs)
        assert losses["loss"].device == CUDA
        losses["loss"].backward()
        gradients = [p.grad for p in moved.parameters() if p.requires_grad and p.grad is not None]
        assert gradients
        assert all(gradient.device == CUDA for gradient in gradients)


def test_a_step_of_a_verifier_stays_on_the_device() -> None:
    flow = ActionFlow(FlowConfig(6, 2, 3, TransformerSize(12, 1, 2), conditions=4))
    with fake_cuda() as mode:
        moved = as_cuda(flow, mode)
        latents, actions = (torch.zeros(*shape, device=CUDA) for shape in ((5, 2, 6), (5, 3)))
        condition = torch.zeros(5, dtype=torch.long, device=CUDA)
        loss = flow_matching_loss(moved, latents, latents, actions, condition)
        loss.backward()
        assert {loss.device, moved.to_velocity.weight.grad.device} == {CUDA}
        assert moved.infer(latents, latents, condition, steps=3).device == CUDA


def test_a_step_of_a_tokenizer_stays_on_the_device() -> None:
    made = CompactTokenizer(lite())
    pixels = torch.zeros(2, 64, 64, 3, dtype=torch.uint8)
    with fake_cuda() as mode:
        moved = as_cuda(made, mode)
        losses = CompactLoss(CompactLossConfig())(moved, cuda_tensor(pixels, mode))
        losses["loss"].backward()
        drawn = moved.decode(moved.encode(cuda_tensor(pixels, mode)))
        assert {losses["loss"].device, moved.qformer.queries.grad.device, drawn.device} == {CUDA}
