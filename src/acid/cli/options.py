"""Options that several commands share, so that the same thing is set the same way everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Compute:
    """Where networks run."""

    device: str = "auto"
    """auto (the GPU if there is one), cpu, cuda, cuda:1 or mps."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 when training on a GPU, else float32."""
