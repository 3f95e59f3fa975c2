"""How fast is the particle simulator? Pushes per CPU-second of one core, after compilation, for rope and granular.

The pushes are those of data collection: through the object, from anywhere beside it, along one episode after another.
CPU time, not wall time: what else the machine does hardly matters.

    python benchmarks/particles.py [--tasks rope granular] [--episodes 4] [--json]
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from acid import tasks
from acid.tasks.deformable import Deformable

WANTED = {"rope": 5.0, "granular": 15.0}  # pushes per CPU-second


def main() -> None:
    options = parse_options()
    result = {name: measure(name, options.episodes) for name in options.tasks}
    print(json.dumps(result, indent=2) if options.json else describe(result))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=sorted(WANTED), choices=sorted(WANTED), help="default: both")
    parser.add_argument("--episodes", type=int, default=4, help="episodes of 20 pushes per task")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def measure(name: str, episodes: int) -> dict[str, float]:
    task = tasks.make(name, size=8)
    assert isinstance(task, Deformable)
    before = time.process_time()
    task.advance(np.zeros(4))  # compiles, or loads what was compiled before
    compilation = time.process_time() - before
    seconds = [timed for episode in range(episodes) for timed in time_episode(task, episode)]
    task.close()
    return {
        "pushes_per_second": len(seconds) / sum(seconds),
        "median_milliseconds": 1000 * float(np.median(seconds)),
        "slowest_milliseconds": 1000 * max(seconds),
        "compilation_seconds": compilation,
    }


def time_episode(task: Deformable, seed: int) -> list[float]:
    """CPU seconds of every push; looking ahead for the policy is not counted."""
    task.reset(seed=seed)
    policy = task.policy(np.random.default_rng(seed))
    seconds = []
    for _ in range(task.episode_steps):
        action = policy.act(task)
        task.foresee(np.zeros(4))  # forget what the policy looked at
        before = time.process_time()
        task.advance(action)
        seconds.append(time.process_time() - before)
    return seconds


def describe(result: dict[str, dict[str, float]]) -> str:
    lines = ["task       pushes/s   wanted   median ms   slowest ms   compilation s   (one core, CPU time)"]
    lines += [
        f"{name:<10} {found['pushes_per_second']:>8.1f} {WANTED[name]:>8.0f} {found['median_milliseconds']:>11.1f} "
        f"{found['slowest_milliseconds']:>12.1f} {found['compilation_seconds']:>15.1f}"
        for name, found in result.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
