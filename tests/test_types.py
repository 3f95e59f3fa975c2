"""Action statistics are finite numbers, and scale whole numbers like others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from acid.errors import AcidError
from acid.types import ActionScaler

SCALER = ActionScaler(mean=(0.5, -1.5), std=(1.5, 2.5), frameskip=2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.bool])
def test_whole_numbers_are_scaled_like_others(dtype: torch.dtype) -> None:
    actions = torch.tensor([[0, 1], [1, 0], [1, 1], [0, 0]])
    assert torch.equal(SCALER.normalise(actions.to(dtype)), SCALER.normalise(actions.float()))
    assert torch.equal(SCALER.denormalise(actions.view(2, 4).to(dtype)), SCALER.denormalise(actions.view(2, 4).float()))


def test_statistics_may_be_arrays() -> None:
    made = ActionScaler(np.array([0.5, -1.5]), torch.tensor([1.5, 2.5]), 2)  # type: ignore[arg-type]
    assert made == SCALER


@pytest.mark.parametrize(
    "arguments",
    [
        ((float("nan"), 0.0), (1.0, 1.0)),
        ((float("inf"), 0.0), (1.0, 1.0)),
        ((0.0, 0.0), (1.0, float("nan"))),
        ((0.0, 0.0), (1.0, 0.0)),
        (("x", 0.0), (1.0, 1.0)),
        (0.0, 1.0),
        ((), ()),
        ((0.0,), (1.0,), 1.5),
        ((0.0,), (1.0,), 10**12),
    ],
)
def test_statistics_that_make_no_sense_are_refused(arguments: tuple) -> None:
    with pytest.raises(AcidError):
        ActionScaler(*arguments)
