"""Finite scalar quantisation: codes and their numbers are two names of the same thing, and gradients pass."""

from __future__ import annotations

import pytest
import torch

from acid.errors import ShapeError
from acid.nn.fsq import FSQ

LEVELS = (8, 8, 8, 5, 5, 5)


def test_every_code_has_a_number_and_every_number_a_code() -> None:
    quantiser = FSQ(LEVELS)
    assert quantiser.size == 64_000
    numbers = torch.arange(quantiser.size)
    codes = quantiser.from_indices(numbers)
    assert torch.equal(quantiser.to_indices(codes), numbers)
    assert len(codes.unique(dim=0)) == quantiser.size
    assert torch.equal(quantiser.from_levels(quantiser.to_levels(codes)), codes)
    assert torch.equal(quantiser.to_indices(codes.half()), numbers)  # codes may be kept in 16 bits


def test_quantising_gives_codes_and_a_code_stays_what_it_is() -> None:
    quantiser = FSQ(LEVELS)
    codes = quantiser(3 * torch.randn(1000, 6, generator=torch.Generator().manual_seed(0)))
    assert codes.abs().max() <= 1
    torch.testing.assert_close(quantiser.from_levels(quantiser.to_levels(codes)), codes)
    extreme = quantiser(torch.tensor([[-100.0] * 6, [100.0] * 6]))
    torch.testing.assert_close(extreme, torch.tensor([[-1.0] * 6, [1.0] * 6]))


def test_rounding_is_to_the_nearest_level() -> None:
    quantiser = FSQ((5,))
    vectors = torch.linspace(-2, 2, 401)[:, None]
    exact = (vectors.tanh() + 1) * 2.5 - 0.5
    assert (quantiser.to_levels(quantiser(vectors)) - exact).abs().max() <= 0.5 + 1e-5
    assert (quantiser(vectors).diff(dim=0) >= 0).all()


def test_gradients_pass_as_if_nothing_had_been_rounded() -> None:
    quantiser = FSQ((8, 5))
    vectors = torch.tensor([[0.3, -0.7]], requires_grad=True)
    quantiser(vectors).sum().backward()
    sizes = torch.tensor([8.0, 5.0])
    expected = (1 - vectors.detach().tanh().square()) * sizes / 2 * 2 / (sizes - 1)
    torch.testing.assert_close(vectors.grad, expected)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"at least two levels .* got \(8, 1\)"):
        FSQ((8, 1))
    with pytest.raises(ShapeError, match=r"6 numbers each, got \[2, 5\]"):
        FSQ(LEVELS).to_indices(torch.zeros(2, 5))


def test_centred_levels_are_those_of_the_published_quantiser() -> None:
    """Zero is a level, even counts have one more below it, and every level is reached and found again."""
    quantiser = FSQ((4, 5), centred=True)
    vectors = torch.linspace(-4, 4, 401)[:, None].expand(-1, 2)
    codes = quantiser(vectors)
    assert codes[:, 0].unique().tolist() == [-1.0, -0.5, 0.0, 0.5]
    assert codes[:, 1].unique().tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert quantiser(torch.zeros(1, 2)).abs().max() == 0
    numbers = torch.arange(quantiser.size)
    assert torch.equal(quantiser.to_indices(quantiser.from_indices(numbers)), numbers)
    assert quantiser.from_indices(torch.tensor(1)).tolist() == [-0.5, -1.0]


@pytest.mark.parametrize("centred", [False, True])
def test_half_precision_changes_no_code(centred: bool) -> None:
    numbers = torch.arange(64_000)
    codes = FSQ(LEVELS, centred=centred).from_indices(numbers)
    halved = FSQ(LEVELS, centred=centred).bfloat16()
    assert torch.equal(halved.from_indices(numbers), codes)
    assert torch.equal(halved.to_indices(codes), numbers)
