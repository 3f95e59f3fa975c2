"""Trajectories of the navigation task as files in RECON's format, with only the keys that the simulator knows.

Recording i is a pure function of (seed, i) and of how many worlds there are, and is driven in world i mod worlds. A
file that exists is kept, so an interrupted run is continued by calling again.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np

from acid.data.poses import STEP_SECONDS, displacements
from acid.data.recon import Encoding, Recording, encode_image, write_trajectory
from acid.errors import DataError
from acid.tasks.navigation import WORLDS, Navigation


@dataclass(frozen=True)
class Drive:
    """What a simulated folder is a function of."""

    size: int = 64  # px of the frames that will be read; pictures are stored 2 times as wide and 1.5 times as high
    steps: int = Navigation.episode_steps
    worlds: int = WORLDS
    seed: int = 0
    encoding: Encoding = "jpeg"  # "png" keeps every pixel and takes four times the room


def write_recon(
    folder: str | os.PathLike[str],
    trajectories: int,
    drive: Drive | None = None,
    *,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Drive `trajectories` times and write a file for each; `acid.data.recon.open_recon` reads the folder."""
    if trajectories < 1 or processes < 1:
        raise DataError(f"trajectories and processes must be at least 1, got {trajectories} and {processes}")
    drive, folder = drive or Drive(), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # One process keeps to its own worlds: each of them is built once.
    shares = [[i for i in range(trajectories) if i % drive.worlds % processes == part] for part in range(processes)]
    done = 0
    if processes == 1:
        for done, _ in enumerate(_write_share(folder, drive, shares[0]), start=1):
            if progress is not None:
                progress(done, trajectories)
        return folder
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for share in pool.map(_written, repeat(folder), repeat(drive), shares):
            done += share
            if progress is not None:
                progress(done, trajectories)
    return folder


def record(task: Navigation, drive: Drive, index: int) -> Recording:
    """Recording number `index`."""
    reset, behave = np.random.SeedSequence([drive.seed, index]).generate_state(2)
    task.reset(seed=int(reset), options={"world": index % drive.worlds})
    behaviour = task.behaviour(np.random.default_rng(behave))
    images, poses, commands, collisions = [], [], [], []
    for _ in range(drive.steps):
        images.append(encode_image(task.camera_image(), drive.encoding))
        poses.append(task.get_state()[1:])
        commands.append(behaviour.act(task))
        task.advance(commands[-1])
        collisions.append(task.collided)
    driven = displacements(np.stack([*poses, task.get_state()[1:]]))
    command = np.stack(commands)
    extra = {
        "commands/linear_velocity": command[:, 0],
        "commands/angular_velocity": command[:, 1],
        "jackal/linear_velocity": (np.hypot(driven[:, 0], driven[:, 1]) * np.sign(command[:, 0]) / STEP_SECONDS),
        "jackal/angular_velocity": driven[:, 2] / STEP_SECONDS,
        "collision/physical": np.array(collisions),
        "collision/any": np.array(collisions),
    }
    return Recording(images, np.stack(poses), index % drive.worlds, extra)


def _write_share(folder: Path, drive: Drive, indices: list[int]) -> Iterator[int]:
    """Write the trajectories one by one, world after world, and yield after each."""
    task = Navigation(size=drive.size, worlds=drive.worlds)
    try:
        for index in sorted(indices, key=lambda index: index % drive.worlds):
            path = folder / f"sim-{drive.seed:03d}-{index:06d}.hdf5"
            if not path.exists():
                write_trajectory(path, record(task, drive, index))
            yield index
    finally:
        task.close()


def _written(folder: Path, drive: Drive, indices: list[int]) -> int:
    return sum(1 for _ in _write_share(folder, drive, indices))
