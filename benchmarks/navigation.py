"""How fast is the navigation simulator? Frames and steps per CPU-second of one core, along episodes of the data policy.

A frame is drawn twice as wide and 1.5 times as high as it is seen, and averaged. CPU time, not wall time: what else the
machine does matters less.

    python benchmarks/navigation.py [--sizes 64 224] [--worlds 3] [--frames 200] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from acid import tasks
from acid.tasks.navigation import Navigation

WANTED = 2.0  # ms, at most, per frame of 64 pixels


def main() -> None:
    options = parse_options()
    result = {str(size): measure(size, options.worlds, options.frames) for size in options.sizes}
    print(json.dumps(result, indent=2) if options.json else describe(result))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 224], help="pixels along a side of a frame")
    parser.add_argument("--worlds", type=int, default=3, help="worlds that are driven in")
    parser.add_argument("--frames", type=int, default=200, help="frames per world")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def measure(size: int, worlds: int, frames: int) -> dict[str, float]:
    task = tasks.make("navigation", size=size)
    assert isinstance(task, Navigation)
    building, drawing, driving = [], [], []
    for world in range(worlds):
        building.append(timed(lambda world=world: task.reset(seed=0, options={"world": world})))
        behaviour = task.behaviour(np.random.default_rng(world))
        for _ in range(frames):
            driving.append(timed(lambda behaviour=behaviour: task.advance(behaviour.act(task))))
            drawing.append(timed(task.render))
    task.close()
    return {
        "frames_per_second": len(drawing) / sum(drawing),
        "frame_milliseconds": 1000 * float(np.median(drawing)),
        "step_milliseconds": 1000 * float(np.median(driving)),  # deciding where to drive, and driving
        "world_seconds": float(np.median(building)),
    }


def timed(action: Callable[[], object]) -> float:
    before = time.process_time()
    action()
    return time.process_time() - before


def describe(result: dict[str, dict[str, float]]) -> str:
    lines = ["size   frames/s   median ms   wanted   step ms   world s   (one core, CPU time)"]
    for size, found in result.items():
        wanted = f"{WANTED:.1f}" if size == "64" else "-"
        lines.append(
            f"{size:<6} {found['frames_per_second']:>8.0f} {found['frame_milliseconds']:>11.2f} {wanted:>8} "
            f"{found['step_milliseconds']:>9.2f} {found['world_seconds']:>9.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
