"""What looks at latents for people: nothing plans with it, so half the precision is enough on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from acid import checkpoint


class InspectionModel(nn.Module):
    """A network that is made from `config` alone and kept with it in a checkpoint folder."""

    kind: ClassVar[str]
    config_type: ClassVar[type]
    config: Any

    def save(self, folder: str | Path, metadata: Mapping[str, Any]) -> None:
        """16 bits a weight."""
        checkpoint.save(folder, kind=self.kind, config=self.config, state=self, metadata=metadata, dtype=torch.float16)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        stored = checkpoint.load(folder, cls.kind)
        model = cls(checkpoint.config_from(cls.config_type, stored.config))
        checkpoint.load_state(model, stored)
        return model.eval().requires_grad_(False)
