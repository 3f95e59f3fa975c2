"""How fast is data collected? Steps and episodes per CPU-second of one core for every task, and the share of drawing.

CPU time, not wall time: what else the machine does hardly matters.

    python benchmarks/collect.py [--tasks reacher pusht] [--episodes 3] [--size 64] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from acid import tasks
from acid.tasks.collect import record_episode


def main() -> None:
    options = parse_options()
    result = {name: measure(name, options) for name in options.tasks}
    print(json.dumps(result, indent=2) if options.json else describe(result))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=sorted(tasks.TASKS), help="default: all")
    parser.add_argument("--episodes", type=int, default=3, help="episodes per task")
    parser.add_argument("--size", type=int, default=64, help="pixels along each side of an image")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def measure(name: str, options: argparse.Namespace) -> dict[str, float]:
    task = tasks.make(name, size=options.size)
    record_episode(task, seed=0, index=0)  # opens the renderer
    drawing = Stopwatch(task.render)
    task.render = drawing  # type: ignore[method-assign]
    before = time.process_time()
    steps = sum(len(record_episode(task, seed=0, index=index)["action"]) for index in range(1, 1 + options.episodes))
    seconds = time.process_time() - before
    task.close()
    return {
        "episodes_per_second": options.episodes / seconds,
        "steps_per_second": steps / seconds,
        "drawing_share": drawing.seconds / seconds,
        "milliseconds_per_frame": 1000 * drawing.seconds / drawing.calls,
    }


class Stopwatch:
    """Adds up the CPU seconds spent in a function."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function, self.seconds, self.calls = function, 0.0, 0

    def __call__(self) -> Any:
        before = time.process_time()
        found = self.function()
        self.seconds += time.process_time() - before
        self.calls += 1
        return found


def describe(result: dict[str, dict[str, float]]) -> str:
    lines = ["task       episodes/s   steps/s   drawing   ms/frame   (one core, CPU time)"]
    lines += [
        f"{name:<10} {found['episodes_per_second']:>10.2f} {found['steps_per_second']:>9.0f} "
        f"{found['drawing_share']:>8.0%} {found['milliseconds_per_frame']:>10.2f}"
        for name, found in result.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
