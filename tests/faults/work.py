"""Work that writes files: what is killed, and what meets a full or a read-only disk.

`WORK[name](folder, tick)` does it, or continues it, and returns what came out as bytes; `tick()` is called on the way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fake_rows import SAME, row
from torch import nn

from acid import checkpoint
from acid.data import Episodes, EpisodeWriter, cached_latents, concatenate
from acid.evaluation import Instance, Instances, Protocol, RowFile
from acid.evaluation.instances import load_instances, save_instances
from acid.loop import LoopConfig, train

Tick = Callable[[], None]


def training(folder: Path, tick: Tick) -> bytes:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
    config = LoopConfig(steps=30, batch_size=4, log_every=3, save_every=3, ema=0.9)

    def batches(start: int) -> Iterator[Any]:
        for step in range(start, config.steps):
            tick()
            yield torch.randn(4, 8, generator=torch.Generator().manual_seed(step))

    def loss(batch: Any) -> dict[str, Any]:
        return {"loss": (module(batch) - batch.sum(1, keepdim=True)).square().mean()}

    train(module, loss, batches, config, folder)  # type: ignore[arg-type]
    return b"".join(value.numpy().tobytes() for value in module.state_dict().values())


def rows(folder: Path, tick: Tick) -> bytes:
    path = folder / "rows.jsonl"
    with RowFile(path, SAME) as file:
        for number in range(20):
            tick()
            if row(number).key not in file:
                file.append([row(number)])
    return path.read_bytes()


def episodes(folder: Path, tick: Tick) -> bytes:
    """A part is whole or not there; the parts are joined in the end."""
    parts = [folder / f"{number}.h5" for number in range(3)]
    for number, part in enumerate(parts):
        if not part.exists():
            with EpisodeWriter(part) as writer:
                for _ in range(3):
                    tick()
                    pixels = np.random.default_rng(number).integers(0, 255, (8, 32, 32, 3)).astype(np.uint8)
                    writer.write({"pixels": pixels, "action": np.full((8, 2), number, np.float32)})
    concatenate(parts, folder / "all.h5")
    with Episodes(folder / "all.h5") as joined:
        everything = np.arange(joined.rows)
        return b"".join(joined.read(name, everything).tobytes() for name in sorted(joined.columns))


def weights(folder: Path, tick: Tick) -> bytes:
    for version in range(5):
        tick()
        state = {"weight": torch.full((4000,), float(version))}
        checkpoint.save(folder, kind="test", config={"version": version}, state=state)
    found = checkpoint.load(folder, "test")
    assert found.config["version"] == found.state["weight"][0], "weights and configuration of different versions"
    return found.state["weight"].numpy().tobytes()


def instances(folder: Path, tick: Tick) -> bytes:
    protocol, path = Protocol(goal_offset=5, budget=10, episodes=200), folder / "instances-test.jsonl"
    made = [
        Instance(
            id=f"i{n}", episode=n, start_step=0, draw=n, solved=False, start_state=np.arange(4.0), goal_state=np.ones(4)
        )
        for n in range(200)
    ]
    for _ in range(3):
        tick()
        save_instances(path, Instances(made), protocol, "line")
    return b"".join(instance.start_state.tobytes() for instance in load_instances(path, protocol, "line"))


def latents(folder: Path, tick: Tick) -> bytes:
    for version in range(4):
        tick()
        found = cached_latents(
            folder / "a.safetensors", str(version), lambda v=version: torch.full((5000, 1, 2), float(v))
        )
    return found.numpy().tobytes()


WORK: dict[str, Callable[[Path, Tick], bytes]] = {
    made.__name__: made for made in (training, rows, episodes, weights, instances, latents)
}


def digest(found: bytes) -> str:
    return hashlib.sha256(found).hexdigest()
