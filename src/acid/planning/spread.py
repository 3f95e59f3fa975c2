"""How much a cost differs between candidates."""

from __future__ import annotations

import torch
from torch import Tensor


def spread(values: Tensor, usable: Tensor) -> Tensor:
    """Unbiased standard deviation over the usable of N candidates, [B, N] to [B]; 0 when fewer than two.

    Any power of two times the values gives that power times the spread, bit for bit: squares neither underflow nor
    overflow, because the values are first divided by a power of two near the largest.
    """
    values = values.masked_fill(~usable, 0.0)
    unit = _power_of_two(values.abs().amax(1))
    values = values / unit[:, None]
    lowest = values.masked_fill(~usable, torch.inf).amin(1, keepdim=True)
    offset = (values - lowest).masked_fill(~usable, 0.0)  # equal costs give exactly 0, not their rounding error
    count = usable.sum(1)
    mean = offset.sum(1) / count.clamp(min=1)
    squares = (offset - mean[:, None]).masked_fill(~usable, 0.0).square().sum(1)
    return (squares / (count - 1).clamp(min=1)).sqrt() * unit


def _power_of_two(values: Tensor) -> Tensor:
    """The powers of two just below values ≥ 0: their bits without the mantissa. At least the smallest normal number."""
    bits, exponent = (torch.int32, 0xFF << 23) if values.dtype == torch.float32 else (torch.int64, 0x7FF << 52)
    return (values.view(bits) & exponent).view(values.dtype).clamp(min=torch.finfo(values.dtype).tiny)
