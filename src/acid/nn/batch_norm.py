"""Batch normalisation whose batch is that of all processes which train together, on any device."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acid import distributed


class _WholeBatch(_BatchNorm):
    """Alone, and in evaluation, it is torch's own layer."""

    of_whole_batch = True

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or distributed.processes() == 1:
            return super().forward(input)
        x = input.float()
        samples = x.transpose(0, 1).flatten(1)  # [C, n]
        mean = distributed.mean(samples.mean(1))
        variance = distributed.mean((samples - mean[:, None]).square().mean(1))
        self._remember(mean.detach(), variance.detach(), samples.shape[1] * distributed.processes())
        scale = (variance + self.eps).rsqrt() * (self.weight if self.affine else 1)
        shape = (1, -1, *[1] * (x.dim() - 2))
        normal = (x - mean.view(shape)) * scale.view(shape)
        return (normal + self.bias.view(shape) if self.affine else normal).to(input.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor, count: int) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance * count / (count - 1), momentum)


class BatchNorm1d(_WholeBatch, nn.BatchNorm1d):
    pass


class BatchNorm2d(_WholeBatch, nn.BatchNorm2d):
    pass
