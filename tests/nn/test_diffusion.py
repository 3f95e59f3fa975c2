"""Diffusion there and back: the published equations, written down one number at a time."""

from __future__ import annotations

import math

import pytest
import torch

from acid.errors import ShapeError
from acid.nn.diffusion import STEPS, Diffusion

BETAS = [1e-4 + (0.02 - 1e-4) * step / (STEPS - 1) for step in range(STEPS)]


def kept(level: int) -> float:
    """The share of the variance that is still signal."""
    return math.prod(1 - beta for beta in BETAS[: level + 1])


def step_back(levels: list[int], step: int, x: float, clean: float) -> tuple[float, float, float]:
    """Mean, least variance and most variance of the step before."""
    now, before = kept(levels[step]), kept(levels[step - 1]) if step else 1.0
    beta = 1 - now / before
    mean = (math.sqrt(before) * beta * clean + math.sqrt(1 - beta) * (1 - before) * x) / (1 - now)
    return mean, beta * (1 - before) / (1 - now), beta


@pytest.mark.parametrize("steps", [2, 7, 250, 1000])
def test_steps_are_spread_evenly_from_the_first_to_the_last(steps: int) -> None:
    stride, place, expected = (STEPS - 1) / (steps - 1), 0.0, []
    for _ in range(steps):
        expected.append(round(place))
        place += stride
    assert Diffusion(steps).levels == expected
    assert (expected[0], expected[-1]) == (0, 999)


@pytest.mark.parametrize("step", [0, 1, 5, 9])
def test_a_step_back(step: int) -> None:
    diffusion = Diffusion(10)
    clean, noise, where = 0.7, -1.3, 0.2
    level = diffusion.levels[step]
    noised = math.sqrt(kept(level)) * clean + math.sqrt(1 - kept(level)) * noise
    one = torch.ones(1, 1, 1)
    assert float(diffusion.noised(clean * one, step, noise * one)) == pytest.approx(noised, abs=1e-6)
    mean, least, most = step_back(diffusion.levels, step, noised, clean)
    if step == 0:
        least = step_back(diffusion.levels, 1, 0, 0)[1]
    expected = 0.6 * math.log(most) + 0.4 * math.log(least)
    for chosen in (step, torch.tensor([step])):
        found, log_variance = diffusion.back(torch.tensor([[[noise, where]]]), noised * one, chosen)
        assert float(found) == pytest.approx(mean, abs=1e-5)
        assert float(log_variance) == pytest.approx(expected, abs=1e-5)


def divergence(mean: float, variance: float, other: float, other_variance: float) -> float:
    return 0.5 * (math.log(other_variance / variance) + (variance + (mean - other) ** 2) / other_variance - 1)


def normal_cdf(x: float) -> float:
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


@pytest.mark.parametrize(("step", "clean"), [(500, 0.3), (999, -0.4), (0, 0.3), (0, -1.2), (0, 1.2)])
def test_the_losses(step: int, clean: float) -> None:
    diffusion = Diffusion()
    noise, said, where = 0.5, 0.4, -0.3
    now = kept(step)
    noised = math.sqrt(now) * clean + math.sqrt(1 - now) * noise
    guess = (noised - math.sqrt(1 - now) * said) / math.sqrt(now)
    true, least, most = step_back(list(range(STEPS)), step, noised, clean)
    mean = step_back(list(range(STEPS)), step, noised, guess)[0]
    if step == 0:
        least = step_back(list(range(STEPS)), 1, 0, 0)[1]
    variance = math.exp(0.35 * math.log(most) + 0.65 * math.log(least))
    if step:
        bound = divergence(true, least, mean, variance)
    else:  # one of 256 shades, of which the outermost reach on for ever
        above, below = (normal_cdf((clean - mean + side / 255) / math.sqrt(variance)) for side in (1, -1))
        bound = -math.log(max(above if clean < -0.999 else 1 - below if clean > 0.999 else above - below, 1e-12))
    output = torch.tensor([[[said, where]]], requires_grad=True)
    losses = diffusion.losses(output, torch.full((1, 1, 1), clean), torch.full((1, 1, 1), noise), torch.tensor([step]))
    assert losses[0].item() == pytest.approx(0.01, abs=1e-6)
    assert losses[1].item() == pytest.approx(bound / math.log(2), rel=2e-3, abs=1e-5)
    (gradient,) = torch.autograd.grad(losses[1].sum(), output)
    assert float(gradient[0, 0, 0]) == 0  # the bound leaves the noise alone


def test_who_knows_the_noise_finds_the_value() -> None:
    diffusion, clean = Diffusion(50), torch.tensor([[0.8, -0.5]])
    random = torch.Generator().manual_seed(0)

    def predict(x: torch.Tensor, level: int) -> torch.Tensor:
        noise = (x - math.sqrt(kept(level)) * clean) / math.sqrt(1 - kept(level))
        return torch.cat([noise, torch.zeros_like(noise)], -1)

    found = diffusion.sample(predict, lambda: torch.randn(3, 1, 2, generator=random))
    torch.testing.assert_close(found, clean.expand(3, 1, 2), atol=1e-4, rtol=0)


@pytest.mark.parametrize("steps", [1, 0, 1001])
def test_steps_that_cannot_be(steps: int) -> None:
    with pytest.raises(ShapeError, match=f"in 2 to 1000 steps, got {steps}"):
        Diffusion(steps)
