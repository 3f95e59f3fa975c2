"""SIGReg is small for standard Gaussian samples and grows with every way of not being one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from acid.models.sigreg import SIGReg

TIMES, BATCH, SIZE = 2, 512, 8


def statistic(embeddings: Tensor) -> Tensor:
    torch.manual_seed(1)  # the same projections for everyone
    return SIGReg(projections=64)(embeddings)


@pytest.fixture
def gaussian() -> Tensor:
    return torch.randn(TIMES, BATCH, SIZE, generator=torch.Generator().manual_seed(0))


def test_a_gaussian_sample_scores_as_chance_does(gaussian: Tensor) -> None:
    """Over the batch size, the expected gap of n samples is (1 − φ²)/n, so the statistic does not grow with n."""
    few, many = statistic(gaussian[:, :64]), statistic(gaussian)
    assert 0.3 < few / many < 3
    assert many < 2


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda x: torch.zeros_like(x), id="collapsed to a point"),
        pytest.param(lambda x: x[..., :1].expand_as(x) * 1.0, id="collapsed to a line"),
        pytest.param(lambda x: 2 * x, id="too wide"),
        pytest.param(lambda x: x / 2, id="too narrow"),
        pytest.param(lambda x: x + 1, id="off centre"),
        pytest.param(lambda x: 3**0.5 * x.sign(), id="two points per dimension"),
    ],
)
def test_anything_else_scores_worse(gaussian: Tensor, spoil: Callable[[Tensor], Tensor]) -> None:
    assert statistic(spoil(gaussian)) > 5 * statistic(gaussian)


def test_a_uniform_sample_is_told_from_a_gaussian_of_the_same_variance() -> None:
    generator = torch.Generator().manual_seed(0)
    uniform = (torch.rand(1, 4096, 1, generator=generator) * 2 - 1) * 3**0.5
    gaussian = torch.randn(1, 4096, 1, generator=generator)
    assert statistic(uniform) > 5 * statistic(gaussian)


def test_every_time_is_a_sample_of_its_own(gaussian: Tensor) -> None:
    """Narrow at one time and wide at another is not Gaussian on average."""
    both = statistic(gaussian * torch.tensor([0.5, 1.5]).view(2, 1, 1))
    each = [statistic(gaussian[[time]] * scale) for time, scale in ((0, 0.5), (1, 1.5))]
    assert both.item() == pytest.approx(sum(each).item() / 2, rel=1e-5)


def test_the_gradient_pulls_a_collapsed_batch_apart() -> None:
    embeddings = 0.05 * torch.randn(1, 128, 4, generator=torch.Generator().manual_seed(0))
    embeddings.requires_grad_()
    optimiser = torch.optim.Adam([embeddings], lr=0.05)
    sigreg = SIGReg(projections=64)
    torch.manual_seed(0)
    for _ in range(80):
        optimiser.zero_grad()
        sigreg(embeddings).backward()
        optimiser.step()
    std = embeddings.detach()[0].std(0)
    assert ((std > 0.7) & (std < 1.3)).all()
