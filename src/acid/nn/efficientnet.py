"""EfficientNet-lite0 up to a given block: inverted bottlenecks with ReLU6, no squeeze-and-excitation.

For inference only: batch normalisation is folded into the convolutions when the published weights are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.errors import ShapeError

STEM = 32  # channels after the first convolution
NORM_EPSILON = 1e-3  # of the batch normalisation that the weights were trained with


class _Stage(NamedTuple):
    blocks: int
    kernel: int
    stride: int  # of its first block
    expand: int
    channels: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)
BLOCKS = sum(stage.blocks for stage in _STAGES)


class _Conv(nn.Conv2d):
    """A convolution with the padding of its training: even, with an odd pixel to the right and below."""

    def forward(self, x: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        if kernel > 1:
            (top, bottom), (left, right) = (_padding(side, kernel, stride) for side in x.shape[2:])
            x = F.pad(x, (left, right, top, bottom))
        return super().forward(x)


def _padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Padding before and after, so that ceil(side / stride) positions remain."""
    missing = max(0, (-(-side // stride) - 1) * stride + kernel - side)
    return missing // 2, missing - missing // 2


class _Bottleneck(nn.Module):
    """Widen, convolve, narrow; residual where the shape stays the same."""

    def __init__(self, before: int, stage: _Stage, stride: int) -> None:
        super().__init__()
        inner = before * stage.expand
        self.expand = _Conv(before, inner, 1) if stage.expand > 1 else None
        self.depthwise = _Conv(inner, inner, stage.kernel, stride, groups=inner)
        self.project = _Conv(inner, stage.channels, 1)
        self.residual = stride == 1 and before == stage.channels

    def forward(self, x: Tensor) -> Tensor:
        inner = x if self.expand is None else F.relu6(self.expand(x))
        out = self.project(F.relu6(self.depthwise(inner)))
        return x + out if self.residual else out


class EfficientNetLite0(nn.Module):
    """Images [M, 3, S, S], values (x − 127) / 128, to the feature map after a block: [M, C, S/stride, S/stride].

    Of the 16 blocks (0 to 15), 2 ends at stride 4 (24 channels), 4 at 8 (40), 7 at 16 (80), 10 at 16 (112),
    14 at 32 (192), 15 at 32 (320).
    """

    def __init__(self, block: int) -> None:
        super().__init__()
        if not 0 <= block < BLOCKS:
            raise ShapeError(f"EfficientNet-lite0 has blocks 0 to {BLOCKS - 1}, got {block}")
        self.stem = _Conv(3, STEM, 3, 2)
        self.blocks = nn.Sequential(*list(_bottlenecks())[: block + 1])

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(F.relu6(self.stem(images.contiguous(memory_format=torch.channels_last))))

    def load_published(self, state: Mapping[str, Tensor]) -> None:
        """Load weights from a state dict with the names of the published file; later blocks are ignored."""
        _fold(self.stem, state, "_conv_stem", "_bn0")
        for index, block in enumerate(self.blocks):
            for part, conv, norm in (
                ("expand", "_expand_conv", "_bn0"),
                ("depthwise", "_depthwise_conv", "_bn1"),
                ("project", "_project_conv", "_bn2"),
            ):
                target = getattr(block, part)
                if target is not None:
                    _fold(target, state, f"_blocks.{index}.{conv}", f"_blocks.{index}.{norm}")


def _bottlenecks() -> Iterator[_Bottleneck]:
    before = STEM
    for stage in _STAGES:
        for index in range(stage.blocks):
            yield _Bottleneck(before, stage, stage.stride if index == 0 else 1)
            before = stage.channels


@torch.no_grad()
def _fold(target: nn.Conv2d, state: Mapping[str, Tensor], conv: str, norm: str) -> None:
    """A convolution and the normalisation after it as one convolution with a bias."""
    scale = state[f"{norm}.weight"] * (state[f"{norm}.running_var"] + NORM_EPSILON).rsqrt()
    target.weight.copy_(state[f"{conv}.weight"] * scale.view(-1, 1, 1, 1))
    assert target.bias is not None
    target.bias.copy_(state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale)
