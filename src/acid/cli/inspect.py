"""`acid inspect`: what a world model and its verifier know, without a simulator."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from acid.cli.options import Device, OnDevice
from acid.cli.progress import bar
from acid.errors import AcidError, did_you_mean


@dataclass(frozen=True)
class Inspect:
    """Find out from recorded episodes what a world model and its verifier know; no simulator is needed."""

    checkpoint: Annotated[str, tyro.conf.Positional]
    """A folder with the subfolders model and verifier, or a shipped cell such as reacher/lewm."""
    data: Path
    """Recorded episodes; `acid import` makes such a file of other formats."""
    horizon: int = 5
    """How many model steps to imagine."""
    windows: int = 128
    """How many recorded windows of that length to use."""
    pool: int = 32
    """With how many other recorded plans each one is compared, to suggest a λ."""
    keep: bool = False
    """Store the directions in the verifier's checkpoint; `part="told"` and the conditions told and untold need them."""
    json: bool = False
    """Print JSON instead of a table."""
    compute: OnDevice = field(default_factory=Device)

    def run(self) -> None:
        import torch

        from acid.evaluation import shipped
        from acid.evaluation.cells import ASSETS
        from acid.views.checkup import check_up, keep_directions

        torch.set_num_threads(1)
        ours = self.checkpoint in shipped()
        if ours and self.keep:
            raise AcidError(f"{self.checkpoint} is shipped and never written to: copy its folder, or leave out --keep")
        folder = ASSETS / self.checkpoint if ours else Path(self.checkpoint)
        if not folder.is_dir():
            close = did_you_mean(self.checkpoint, shipped())
            raise AcidError(f"{self.checkpoint} is neither a folder nor a shipped cell{close}")
        with bar("inspect", "window") as progress:
            found = check_up(
                folder,
                self.data,
                horizon=self.horizon,
                windows=self.windows,
                pool=self.pool,
                device=self.compute.resolved,
                progress=progress,
            )
        print(json.dumps(found.as_dict(), indent=2, ensure_ascii=False) if self.json else found.text())
        if self.keep:
            keep_directions(folder, found)
            print(f"kept the directions in {folder / 'verifier'}", file=sys.stderr)
