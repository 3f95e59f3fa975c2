"""Attention over a handful of keys."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FEW = 6  # number of keys up to which this is faster on a CPU than a fused kernel


def attend_few(query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], *, zero: bool = False) -> Tensor:
    """Queries [..., width] over a short list of keys and values that broadcast against them, to [..., width].

    Written out, because with so few keys a fused kernel spends most of its time on overhead.
    zero: there is one more key and value, all of whose numbers are 0.
    """
    if len(keys) == 1 and not zero:
        return values[0].expand(torch.broadcast_shapes(query.shape, values[0].shape))
    scores = [(query * key).sum(-1) for key in keys]
    scores += [torch.zeros_like(scores[0])] * zero
    weights = (torch.stack(torch.broadcast_tensors(*scores)) * query.shape[-1] ** -0.5).softmax(0).unsqueeze(-1)
    mixed = weights[0] * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=not zero):
        mixed = mixed.addcmul_(weight, value)
    return mixed
