"""Observations as they come (tensors, arrays, or mappings of them) made ready for a world model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid.device import device_of, dtype_of
from acid.errors import ShapeError

Observation = Any  # a tensor, an array, or a mapping of observations by name


def as_tensors(observation: Observation, model: Any) -> Any:
    """The same as tensors on the model's device, floating ones in the precision of its weights."""
    if isinstance(observation, Mapping):
        return {name: as_tensors(part, model) for name, part in observation.items()}
    try:
        found = torch.as_tensor(observation if isinstance(observation, Tensor) else np.ascontiguousarray(observation))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            f"an observation must be a tensor, an array or a dict of them, got {type(observation).__name__}"
        ) from error
    dtype = dtype_of(model) if found.is_floating_point() else None
    return found.to(device=device_of(model) or found.device, dtype=dtype or found.dtype)


def as_arrays(observation: Observation) -> Any:
    """A copy as arrays, which later steps of an environment cannot change."""
    if isinstance(observation, Mapping):
        return {name: as_arrays(part) for name, part in observation.items()}
    return observation.numpy(force=True).copy() if isinstance(observation, Tensor) else np.array(observation)


def stacked(observations: Sequence[Any]) -> Any:
    """Arrays, or mappings of them, one after another along a new first axis."""
    if isinstance(observations[0], Mapping):
        return {name: stacked([each[name] for each in observations]) for name in observations[0]}
    return np.stack(observations)
