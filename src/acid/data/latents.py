"""Every frame of a dataset through a frozen encoder, once, and kept on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from acid.data.episodes import Episodes
from acid.errors import DataError
from acid.files import existing, replacing, save_safetensors


@torch.no_grad()
def encode_episodes(
    episodes: Episodes,
    encode: Callable[[Any], Tensor],
    *,
    ids: Sequence[int] | np.ndarray | None = None,
    columns: Sequence[str] = (),
    batch: int = 512,
    dtype: torch.dtype = torch.float32,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Latents [rows, P, D] (on the CPU, as `dtype`) of every frame, so that row numbers of the dataset index them.

    `encode` takes uint8 [M, H, W, 3] and gives [M, P, D]; with `columns`, it takes what `read_observation` gives. With
    `ids`, only those episodes are encoded and every other row is NaN. `progress` is told (frames done, frames in all)
    after each batch.
    """
    rows = episodes.rows_of(ids)
    if not len(rows) or batch < 1:
        raise DataError(f"encoding {episodes.path} needs frames and a batch of at least 1, got {len(rows)} and {batch}")
    latents = torch.empty(0)
    for start in range(0, len(rows), batch):
        chosen = rows[start : start + batch]
        encoded = encode(read_observation(episodes, chosen, columns)).to("cpu", dtype)
        if encoded.dim() != 3 or len(encoded) != len(chosen):
            raise DataError(f"encode must give [{len(chosen)}, P, D], got {list(encoded.shape)}")
        if not len(latents):
            latents = torch.full((episodes.rows, *encoded.shape[1:]), float("nan"), dtype=dtype)
        latents[torch.from_numpy(chosen)] = encoded
        if progress is not None:
            progress(start + len(chosen), len(rows))
    return latents


def read_observation(episodes: Episodes, rows: np.ndarray, columns: Sequence[str] = ()) -> Any:
    """Frames uint8 [*rows.shape, H, W, 3] or, with columns, {"pixels": …} with these, as float32, beside them."""
    pixels = torch.from_numpy(episodes.read("pixels", rows))
    if not columns:
        return pixels
    found = {name: torch.from_numpy(episodes.read(name, rows).astype(np.float32)) for name in columns}
    for name, values in found.items():
        if not torch.isfinite(values).all():
            raise DataError(f"{episodes.path} holds {name} that is not finite, which the world model looks at")
    return {"pixels": pixels, **found}


def cached_latents(path: str | os.PathLike[str], fingerprint: str, compute: Callable[[], Tensor]) -> Tensor:
    """The latents stored at `path` if they carry this fingerprint, else `compute()`, stored there for the next time.

    The fingerprint must change with anything that changes the latents: the encoder's weights and the dataset.
    """
    target = Path(path)
    stored = _load(target, fingerprint)
    if stored is not None:
        return stored
    latents = compute()
    with replacing(target) as partial:
        save_safetensors(partial, {"latents": latents.contiguous()}, {"fingerprint": fingerprint})
    return latents


def _load(path: Path, fingerprint: str) -> Tensor | None:
    """The stored latents, or None when they are absent, damaged or of something else: a cache may be rebuilt."""
    if not path.exists():
        return None
    existing(path)
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("fingerprint") != fingerprint:
                return None
            return file.get_tensor("latents")
    except (SafetensorError, OSError):
        return None
