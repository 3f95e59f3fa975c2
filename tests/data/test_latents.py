from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from acid.data import Episodes, cached_latents, encode_episodes
from acid.errors import DataError


def where(frames: Tensor) -> Tensor:
    """A toy encoder: (episode, step) as the conftest wrote them, as [M, 1, 2]."""
    return frames[:, 0, 0, :2].double().unsqueeze(1)


def test_row_numbers_index_the_latents(write: Callable[..., Path]) -> None:
    episodes = Episodes(write())
    told: list[tuple[int, int]] = []
    latents = encode_episodes(episodes, where, batch=7, progress=lambda done, total: told.append((done, total)))
    assert (latents.shape, latents.dtype) == ((episodes.rows, 1, 2), torch.float32)
    assert torch.equal(latents[:, 0, 0].long(), torch.from_numpy(episodes.read("episode_idx", episodes.rows_of())))
    assert torch.equal(latents[:, 0, 1].long(), torch.from_numpy(episodes.read("step_idx", episodes.rows_of())))
    assert told[-1] == (episodes.rows, episodes.rows)


def test_many_tokens_are_kept_in_half_precision(write: Callable[..., Path], tmp_path: Path) -> None:
    episodes = Episodes(write())

    def compute() -> Tensor:
        return encode_episodes(episodes, lambda frames: where(frames).repeat(1, 6, 1), ids=[1], dtype=torch.float16)

    latents = cached_latents(tmp_path / "latents.safetensors", "a", compute)
    assert (latents.shape, latents.dtype) == ((episodes.rows, 6, 2), torch.float16)
    stored = cached_latents(tmp_path / "latents.safetensors", "a", lambda: torch.zeros(1))
    assert stored.dtype == torch.float16
    assert torch.equal(stored.nan_to_num(-1.0), latents.nan_to_num(-1.0))


def test_episodes_left_out_are_nan(write: Callable[..., Path]) -> None:
    episodes = Episodes(write())
    latents = encode_episodes(episodes, where, ids=[2, 0], batch=7)
    chosen = torch.zeros(episodes.rows, dtype=torch.bool)
    chosen[torch.from_numpy(episodes.rows_of([0, 2]))] = True
    assert torch.equal(torch.isfinite(latents).all(dim=2)[:, 0], chosen)


def test_an_encoder_of_the_wrong_shape_is_named(write: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=r"encode must give \[58, P, D\], got \[58, 2\]"):
        encode_episodes(Episodes(write()), lambda frames: where(frames)[:, 0])


def test_the_cache_is_used_only_for_its_own_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "latents.safetensors"
    first, second = torch.rand(4, 1, 2), torch.rand(4, 1, 2)
    assert torch.equal(cached_latents(path, "a", lambda: first), first)
    assert torch.equal(cached_latents(path, "a", lambda: second), first)
    assert torch.equal(cached_latents(path, "b", lambda: second), second)
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_cache_is_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "latents.safetensors"
    cached_latents(path, "a", lambda: torch.rand(4, 1, 2))
    path.write_bytes(path.read_bytes()[:-5])
    rebuilt = torch.rand(4, 1, 2)
    assert torch.equal(cached_latents(path, "a", lambda: rebuilt), rebuilt)
