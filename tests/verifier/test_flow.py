"""The flow: cached inference, Euler integration, what it accepts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from acid.errors import ShapeError
from acid.nn.prefix_suffix import TransformerSize
from acid.verifier import ActionFlow, FlowConfig, flow_matching_loss

SIZE = TransformerSize(width=24, depth=3, heads=3, mlp_ratio=2)


def make_flow(
    *, tokens: int = 1, merge: bool = False, conditions: int = 0, noise: str = "zero", steps: int = 1
) -> ActionFlow:
    torch.manual_seed(0)
    flow = ActionFlow(FlowConfig(5, tokens, 3, SIZE, steps=steps, noise=noise, merge=merge, conditions=conditions))
    for parameter in flow.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return flow.requires_grad_(False)


def uncached_infer(flow: ActionFlow, latent: Tensor, next_latent: Tensor, noise: Tensor, steps: int) -> Tensor:
    """Row by row, and the prefix read anew at every Euler step."""
    rows = []
    for first, second, action in zip(latent, next_latent, noise, strict=True):
        for step in range(steps):
            memory = flow.remember(first[None], second[None])
            time = torch.tensor([1 - step / steps])
            action = action - flow.velocity(memory, action[None], time)[0] / steps
        rows.append(action)
    return torch.stack(rows)


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("steps", [1, 7])
def test_cached_and_uncached_inference_agree(tokens, steps, merge):
    flow = make_flow(tokens=tokens, merge=merge)
    latent, next_latent, noise = torch.randn(6, tokens, 5), torch.randn(6, tokens, 5), torch.randn(6, 3)
    cached = flow.infer(latent, next_latent, steps=steps, noise=noise)
    torch.testing.assert_close(cached, uncached_infer(flow, latent, next_latent, noise, steps))
    shared = flow.infer(latent, next_latent, steps=steps)
    torch.testing.assert_close(shared, uncached_infer(flow, latent, next_latent, torch.zeros(6, 3), steps))


def test_prefix_is_read_once_for_all_euler_steps(monkeypatch):
    flow = make_flow(steps=10)
    reads = []
    remember = flow.transformer.remember
    monkeypatch.setattr(flow.transformer, "remember", lambda prefix: reads.append(1) or remember(prefix))
    flow.infer(torch.randn(4, 1, 5), torch.randn(4, 1, 5))
    assert len(reads) == 1


def test_any_leading_shape_and_any_number_of_rows():
    flow = make_flow()
    for lead in [(), (3,), (2, 4, 3), (0,), (2000,)]:  # 2000 rows take several chunks
        latent, next_latent = torch.randn(*lead, 1, 5), torch.randn(*lead, 1, 5)
        actions = flow.infer(latent, next_latent)
        assert actions.shape == (*lead, 3)
        if lead and lead[0]:
            torch.testing.assert_close(actions[-1:], flow.infer(latent[-1:], next_latent[-1:]), rtol=1e-4, atol=1e-5)


def test_merged_frames_are_two_prefix_tokens():
    latents = torch.randn(3, 4, 5)
    for merge, expected in [(False, 8), (True, 2)]:
        memory = make_flow(tokens=4, merge=merge).remember(latents, latents)
        assert {part.key.shape[2] for part in memory} == {expected}


@pytest.mark.parametrize("merge", [False, True])
def test_frames_are_told_apart_and_so_are_tokens(merge):
    flow = make_flow(tokens=2, merge=merge)
    latent, next_latent = torch.randn(3, 2, 5), torch.randn(3, 2, 5)
    answer = flow.infer(latent, next_latent)
    assert not torch.allclose(answer, flow.infer(next_latent, latent))
    assert not torch.allclose(answer, flow.infer(latent.flip(1), next_latent))


def test_fixed_noise_is_one_draw_for_all_transitions_and_all_flows():
    flow = make_flow(noise="fixed")
    assert flow.noise.abs().min() > 0
    assert torch.equal(flow.noise, make_flow(noise="fixed").noise)
    latent = torch.randn(1, 1, 5).repeat(4, 1, 1)
    answers = flow.infer(latent, latent + 1)
    torch.testing.assert_close(answers, answers[:1].repeat(4, 1))
    torch.testing.assert_close(answers, flow.infer(latent, latent + 1, noise=flow.noise))
    assert not torch.allclose(answers, flow.infer(latent, latent + 1, noise=torch.zeros(3)))


def test_gradients_reach_the_latents():
    flow = make_flow()
    latent = torch.randn(3, 1, 5, requires_grad=True)
    flow.infer(latent, torch.randn(3, 1, 5)).sum().backward()
    assert latent.grad is not None
    assert latent.grad.abs().min() > 0


def test_latents_are_standardised_inside():
    flow = make_flow()
    latent, next_latent = torch.randn(50, 1, 5), torch.randn(50, 1, 5)
    flow.set_latent_statistics(latent)
    expected = flow.infer(latent, next_latent)
    scale, shift = torch.tensor([0.01, 1.0, 3.0, 100.0, 7.0]), torch.arange(5.0)
    flow.set_latent_statistics(latent * scale + shift)
    torch.testing.assert_close(
        flow.infer(latent * scale + shift, next_latent * scale + shift), expected, rtol=1e-3, atol=1e-4
    )


def test_a_latent_dimension_that_never_varies_stays_finite():
    flow = make_flow()
    latent = torch.randn(50, 1, 5)
    latent[..., 2] = 4.0
    flow.set_latent_statistics(latent)
    assert flow.infer(latent, latent).isfinite().all()


def test_times_follow_beta_one_and_a_half_one(monkeypatch):
    flow = make_flow()
    seen = []
    velocity = flow.velocity
    monkeypatch.setattr(
        flow, "velocity", lambda memory, noisy, time: seen.append(time) or velocity(memory, noisy, time)
    )
    latent = torch.zeros(20_000, 1, 5)
    flow_matching_loss(flow, latent, latent, torch.zeros(20_000, 3), generator=torch.Generator().manual_seed(0))
    (times,) = seen
    for point in (0.2, 0.5, 0.8):  # distribution function τ^1.5
        assert abs((times < point).float().mean() - point**1.5) < 0.01


def test_loss_is_zero_for_the_true_velocity(monkeypatch):
    """With all actions equal to c, the velocity along the path is (x − c) / τ."""
    flow, constant = make_flow(), torch.tensor([1.0, -2.0, 0.5])
    monkeypatch.setattr(flow, "velocity", lambda memory, noisy, time: (noisy - constant) / time[:, None])
    latent = torch.randn(64, 1, 5)
    generator = torch.Generator().manual_seed(0)
    assert flow_matching_loss(flow, latent, latent, constant.repeat(64, 1), generator=generator) < 1e-6
    monkeypatch.setattr(flow, "velocity", lambda memory, noisy, time: (noisy - constant) / time)
    torch.testing.assert_close(flow.infer(latent, latent, steps=5, noise=torch.randn(64, 3)), constant.repeat(64, 1))


def test_wrong_shapes_are_named():
    flow = make_flow(tokens=2)
    good = torch.zeros(4, 2, 5)
    with pytest.raises(ShapeError, match=r"\[\.\.\., 2, 5\].*\[4, 2, 6\]"):
        flow.infer(torch.zeros(4, 2, 6), torch.zeros(4, 2, 6))
    with pytest.raises(ShapeError, match=r"equal shapes.*\[3, 2, 5\]"):
        flow.infer(good, good[:3])
    with pytest.raises(ShapeError, match=r"noise must be \[3\] or \[4, 3\], got \[4, 2\]"):
        flow.infer(good, good, noise=torch.zeros(4, 2))
    with pytest.raises(ShapeError, match="steps must be at least 1, got 0"):
        flow.infer(good, good, steps=0)
    with pytest.raises(ShapeError, match="'zero' or 'fixed', got 'loud'"):
        FlowConfig(5, 1, 3, noise="loud")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="action_size=0"):
        FlowConfig(5, 1, 0)


def test_convolutions_look_at_both_frames_place_by_place():
    config = FlowConfig(5, 36, 3, SIZE, channels=(8, 12))
    assert config.prefix_tokens == 4  # 6 × 6 places, halved to 3 × 3 and to 2 × 2
    torch.manual_seed(0)
    flow = ActionFlow(config)
    for parameter in flow.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    flow.requires_grad_(False)
    latent, next_latent, noise = torch.randn(5, 36, 5), torch.randn(5, 36, 5), torch.randn(5, 3)
    inferred = flow.infer(latent, next_latent, steps=4, noise=noise)
    torch.testing.assert_close(inferred, uncached_infer(flow, latent, next_latent, noise, 4), rtol=1e-4, atol=1e-4)
    swapped = flow.infer(next_latent, latent, steps=4, noise=noise)
    assert (inferred - swapped).abs().max() > 1e-3
    with pytest.raises(ShapeError, match="n × n tokens that are not merged, got 6"):
        FlowConfig(5, 6, 3, channels=(8,))


@pytest.mark.parametrize("size", ["x", 0, 1.5, None, True, 2**70])
def test_sizes_that_are_no_whole_numbers_are_refused(size):
    with pytest.raises(ShapeError, match="whole number"):
        TransformerSize(width=size)
    with pytest.raises(ShapeError, match="must be whole"):
        FlowConfig(2, size, 2)
