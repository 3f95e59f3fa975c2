"""Networks that are made from their configuration alone and kept with it in a checkpoint folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from acid import checkpoint
from acid.device import resolve_device


class StoredNetwork(nn.Module):
    kind: ClassVar[str]
    config_type: ClassVar[type]
    config: Any

    def save(self, folder: str | Path, metadata: Mapping[str, Any], *, half_precision: bool = False) -> None:
        """Half precision stores 16 bits a weight, which load as 32 again."""
        dtype = torch.float16 if half_precision else None
        checkpoint.save(folder, kind=self.kind, config=self.config, state=self, metadata=metadata, dtype=dtype)

    @classmethod
    def load(cls, folder: str | Path, *, device: str | torch.device = "cpu", **options: Any) -> Self:
        """The network of a checkpoint folder, frozen; options are those of its class besides the configuration."""
        stored = checkpoint.load(folder, cls.kind)
        model = checkpoint.restore(
            stored, lambda: cls(checkpoint.config_from(cls.config_type, stored.config), **options), folder
        )
        return model.to(resolve_device(str(device)))
