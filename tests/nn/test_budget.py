"""A network that no memory holds is refused before memory is taken, in one sentence."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from acid.errors import CheckpointError, ShapeError
from acid.nn.budget import building


@pytest.mark.parametrize("width", [10**7, 10**12])
def test_a_layer_that_no_memory_holds_is_refused(width: int) -> None:
    with (
        pytest.raises(ShapeError, match="a net cannot be used: its configuration asks for more than this machine"),
        building("a net"),
    ):
        nn.Linear(width, width)


def test_layers_without_end_are_refused() -> None:
    with pytest.raises(ShapeError, match="asks for more than"), building("a net"):
        nn.Sequential(*(nn.Linear(2, 2) for _ in range(10**9)))


def test_a_network_may_be_as_large_as_its_weights_and_not_much_larger() -> None:
    weights = [torch.zeros(2, 2)]
    with building("a net", weights, CheckpointError):
        nn.Linear(2, 2)
    with (
        pytest.raises(CheckpointError, match="asks for more than its weights are"),
        building("a net", weights, CheckpointError),
    ):
        nn.Linear(2**14, 2**14)


def test_what_torch_says_becomes_a_sentence() -> None:
    with (
        pytest.raises(ShapeError, match=r"a net describes a network that cannot be built \(.*negative dimension"),
        building("a net"),
    ):
        nn.Linear(-1, 2)


def test_building_changes_no_random_numbers() -> None:
    torch.manual_seed(0)
    usual = nn.Linear(3, 3).weight
    torch.manual_seed(0)
    with building("a net"):
        assert torch.equal(nn.Linear(3, 3).weight, usual)
