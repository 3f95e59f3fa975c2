"""A pretended GPU: tensors that know their shape, dtype and device, but hold no numbers.

Under `fake_cuda()` torch computes shapes and devices only. Mixing devices raises, and so does reading a number back to
the host, which on a real GPU waits for all its work. Make modules before: their initialisation needs real numbers.
The device is called "meta", because a build of torch without CUDA refuses to index fake tensors on "cuda".
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

CUDA = torch.device("meta")
Module = TypeVar("Module", bound=nn.Module)


@contextmanager
def fake_cuda() -> Iterator[FakeTensorMode]:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


def as_cuda(module: Module, mode: FakeTensorMode) -> Module:
    """A copy of a module made on the CPU, its parameters and buffers on the pretended GPU.

    Tensors that are neither stay where they are, and using them raises: `.to("cuda")` on a real GPU misses them too.
    """
    with unset_fake_temporarily():
        module = copy.deepcopy(module)
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            part._parameters[name] = nn.Parameter(cuda_tensor(parameter, mode), parameter.requires_grad)
        for name, buffer in part.named_buffers(recurse=False):
            part._buffers[name] = cuda_tensor(buffer, mode)
    return module


def cuda_tensor(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    return mode.from_tensor(tensor).detach().to(CUDA)
