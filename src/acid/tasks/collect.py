"""Collect episodes of a task in parallel. The same seed gives the same data with any number of processes.

Work is cut into parts of a few episodes. A part is written under a temporary name and renamed when complete, so a
killed run leaves only whole parts, which the next run keeps. The last step joins the parts into one file.
"""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from acid import tasks
from acid.data import EpisodeWriter, concatenate
from acid.errors import DataError
from acid.files import GrowingFile, claim, clipped, read_bytes, replacing
from acid.tasks.base import checked_size
from acid.tasks.restoring import check_restores
from acid.workers import worker_pool

Progress = Callable[[int, int], None]
EPISODES_PER_PART = 20


@dataclass(frozen=True)
class Collection:
    """Everything that decides what a dataset contains."""

    task: str = "reacher"
    episodes: int = 3000
    size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise DataError(f"episodes must be at least 1, got {self.episodes}")
        if self.seed < 0:
            raise DataError(f"the seed must not be negative, got {self.seed}")
        checked_size(self.size)

    def description(self) -> str:
        """Written into the dataset."""
        return json.dumps(asdict(self), sort_keys=True)


class Cluster(Protocol):
    """Where functions run beyond this machine, e.g. `acid.evaluation.clusters.Ray`."""

    def map(self, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]: ...


def collect(
    collection: Collection,
    out: Path,
    *,
    processes: int = 2,
    cluster: Cluster | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the dataset to `out`; continues an interrupted run of the same collection.

    cluster: where parts are made instead of by processes of this machine.
    """
    out = Path(out)
    if processes < 1:
        raise DataError(f"processes must be at least 1, got {processes}")
    if out.exists():
        raise DataError(f"{out} exists already; remove it or choose another name")
    tasks.task_class(collection.task).check_has("reset", "behaviour")
    folder = out.with_name(out.name + ".parts")
    lock = _claim(folder, collection)
    everything = range(collection.episodes)
    parts = {
        folder / f"{start:07d}.h5": everything[start : start + EPISODES_PER_PART]
        for start in everything[::EPISODES_PER_PART]
    }
    missing = {part: indices for part, indices in parts.items() if not part.exists()}
    done = collection.episodes - sum(map(len, missing.values()))
    report = progress or (lambda done, total: None)
    report(done, collection.episodes)
    made = _collect_here(collection, missing, processes) if cluster is None else _sent(collection, missing, cluster)
    with closing(made):  # at once, also after Ctrl-C
        for part in made:
            done += len(missing[part])
            report(done, collection.episodes)
    concatenate(list(parts), out, attributes={"collection": collection.description()})
    shutil.rmtree(folder)
    lock.close()
    return out


def _collect_here(collection: Collection, parts: Mapping[Path, range], processes: int) -> Generator[Path, None, None]:
    """Parts as they are written by processes of this machine."""
    with worker_pool(processes) as pool:
        jobs = {pool.submit(_collect_part, collection, indices, part): part for part, indices in parts.items()}
        for job in as_completed(jobs):
            job.result()
            yield jobs[job]


def _sent(collection: Collection, parts: Mapping[Path, range], cluster: Cluster) -> Generator[Path, None, None]:
    """Parts as they come from a cluster, whose machines need not see this folder."""
    paths = list(parts)
    for number, content in cluster.map(_part_as_bytes, [(collection, parts[path]) for path in paths]):
        with replacing(paths[number]) as partial:
            partial.write_bytes(content)
        yield paths[number]


def _part_as_bytes(collection: Collection, indices: range) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _collect_part(collection, indices, Path(folder) / "part.h5")
        return (Path(folder) / "part.h5").read_bytes()


def _claim(folder: Path, collection: Collection) -> GrowingFile:
    """Lock the folder for this run. Two runs must never write into the same parts."""
    lock = GrowingFile(folder / "collection.json")
    claim(lock.file.fileno(), folder)
    found, wanted = read_bytes(lock.path), collection.description().encode()
    if found != wanted:
        if found and any(folder.glob("*.h5")):
            described = clipped(found.decode(errors="replace"))
            raise DataError(
                f"{folder} holds parts of another collection, {described}; remove it or choose another output name"
            )
        lock.cut(0)  # that one failed before its first part
        lock.add(wanted)
    return lock


def _collect_part(collection: Collection, indices: range, path: Path) -> None:
    task = _task_of_this_process(collection.task, collection.size)
    with EpisodeWriter(path) as writer:
        for index in indices:
            writer.write(record_episode(task, collection.seed, index))


@functools.lru_cache(maxsize=1)
def _task_of_this_process(name: str, size: int) -> tasks.Task:
    """Built once per process: some simulators take seconds. The renderer is freed when the process ends."""
    task = tasks.make(name, size=size)
    pixels, _ = task.reset(seed=0)
    if pixels.dtype != np.uint8 or pixels.shape != (size, size, 3):
        raise DataError(
            f"the task {task.name!r} must draw uint8 [{size}, {size}, 3], got {pixels.dtype} {list(pixels.shape)}"
        )
    check_restores(task, task.get_state())
    return task


def record_episode(task: tasks.Task, seed: int, index: int) -> dict[str, np.ndarray]:
    """Episode `index` of a collection: a pure function of (task, seed, index)."""
    reset, behave = np.random.SeedSequence([seed, index]).generate_state(2)
    pixels, _ = task.reset(seed=int(reset))
    behaviour = task.behaviour(np.random.default_rng(behave))
    rows: dict[str, list[np.ndarray]] = {}
    for _ in range(task.episode_steps):
        row = {"pixels": pixels, "state": task.get_state(), **task.columns()}
        row["action"] = np.asarray(behaviour.act(task), np.float32)
        for name, value in row.items():
            rows.setdefault(name, []).append(value)
        task.advance(row["action"])
        pixels = task.render()
    return {name: np.stack(values) for name, values in rows.items()}
