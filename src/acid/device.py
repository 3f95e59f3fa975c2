"""Where tensors live: names of devices, and the device and precision of a model."""

from __future__ import annotations

from typing import Any

import torch

from acid.errors import AcidError, did_you_mean


def resolve_device(name: str) -> torch.device:
    """The device called auto, cpu, cuda, cuda:<number> or mps; auto is the first of cuda, mps and cpu that is there."""
    available = _available()
    if name == "auto":
        return torch.device(available[-1])
    if name in available:
        return torch.device(name)
    if name == "cuda" or name.startswith("cuda:") or name == "mps":
        raise AcidError(f"device {name!r} is not available here; available: auto, {', '.join(available)}")
    raise AcidError(f"unknown device {name!r}{did_you_mean(name, ['auto', *available])}")


def device_of(model: Any) -> torch.device | None:
    """The device of the first parameter or buffer, else the attribute `device`, else None."""
    if isinstance(model, torch.nn.Module):
        for tensors in (model.parameters(), model.buffers()):
            first = next(tensors, None)
            if first is not None:
                return first.device
    device = getattr(model, "device", None)
    return None if device is None else torch.device(device)


def dtype_of(model: Any) -> torch.dtype | None:
    """The precision of the first floating parameter of a module; None if it has none, or is no module."""
    if not isinstance(model, torch.nn.Module):
        return None
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), None)


def _available() -> list[str]:
    """Names of the devices of this machine, the one to prefer last."""
    names = ["cpu"]
    if torch.backends.mps.is_available():
        names.append("mps")
    if torch.cuda.is_available():
        names += [f"cuda:{index}" for index in range(torch.cuda.device_count())] + ["cuda"]
    return names
