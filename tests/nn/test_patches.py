"""`unroll` over frames of patch tokens against a rollout that recomputes its whole window, and who sees whom."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from acid.nn.causal import CausalConfig
from acid.nn.patches import PatchTransformer

TOKENS, WIDTH, ROWS = 4, 12, 3


def make_network(frames: int, *, conditioned: bool, size: int = WIDTH) -> PatchTransformer:
    torch.manual_seed(0)
    config = CausalConfig(frames=frames, width=WIDTH, depth=2, heads=2, head_width=5, mlp_width=16)
    network = PatchTransformer(config, tokens=TOKENS, size=size, conditioned=conditioned).double().eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return network.requires_grad_(False)


def problem(steps: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(ROWS, TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    return start, torch.randn(ROWS, steps, WIDTH, generator=generator, dtype=torch.float64)


def naive(network: PatchTransformer, start: Tensor, conditions: Tensor) -> Tensor:
    latents = [start]
    for t in range(conditions.shape[1]):
        first = max(0, t + 1 - network.config.frames)
        window = torch.stack(latents[first:], 1)
        if network.conditioned:
            features = network(window, conditions[:, first : t + 1])
        else:
            features = network(window + conditions[:, first : t + 1, None])
        latents.append(latents[-1] + features[:, -1])
    return torch.stack(latents[1:], 1)


@pytest.mark.parametrize("conditioned", [True, False])
@pytest.mark.parametrize("frames", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_unroll_is_the_naive_rollout(frames: int, steps: int, conditioned: bool) -> None:
    network = make_network(frames, conditioned=conditioned)
    start, conditions = problem(steps)
    unrolled = network.unroll(
        start,
        steps,
        conditions if conditioned else None,
        prepare=lambda latent, t: latent if conditioned else latent + conditions[:, t, None],
        finish=lambda features, latent: latent + features,
    )
    torch.testing.assert_close(unrolled, naive(network, start, conditions), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("conditioned", [True, False])
def test_a_token_sees_its_own_frame_and_those_before(conditioned: bool) -> None:
    network = make_network(3, conditioned=conditioned)
    frames = torch.randn(1, 3, TOKENS, WIDTH, dtype=torch.float64)
    conditions = torch.randn(1, 3, WIDTH, dtype=torch.float64) if conditioned else None
    before = network(frames, conditions)
    changed = frames.clone()
    changed[:, 1, 2] += torch.randn(WIDTH).double()  # not a constant, which layer norms would take away
    moved = (network(changed, conditions) - before).abs().amax((0, 3)) > 1e-9  # [frame, token]
    assert moved.tolist() == [[False] * TOKENS, [True] * TOKENS, [True] * TOKENS]


def test_early_frames_stay_as_they_are_when_frames_are_added() -> None:
    network = make_network(3, conditioned=False)
    frames = torch.randn(2, 3, TOKENS, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(network(frames)[:, :2], network(frames[:, :2]), rtol=1e-9, atol=1e-9)


def test_tokens_of_another_size_are_embedded() -> None:
    network = make_network(1, conditioned=False, size=7)
    assert network(torch.randn(2, 1, TOKENS, 7).double()).shape == (2, 1, TOKENS, WIDTH)
