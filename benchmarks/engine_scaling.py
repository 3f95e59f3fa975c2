"""How many workers can one driver keep busy? Measured with the driver's own code, and simulated from three numbers.

A driver hands out batches of episodes and writes the rows that come back. Here its workers are threads that wait as
long as a batch takes instead of planning, so that many fit on one core; handing out, checking and writing are real.
The simulation knows the length of a batch, how long the driver needs for one, and how long before the first.
Times are wall times, because waiting is the point; on a busy machine give longer batches.

    python benchmarks/engine_scaling.py [--workers 1 2 4 8 16 32] [--seconds 0.2] [--repeats 5] [--json]
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acid.evaluation import Cell, Protocol, SearchSpec
from acid.evaluation.clusters import Cluster, _play
from acid.evaluation.jobs import CellContender, Job
from acid.evaluation.rows import Row

EPISODES = 8  # of a batch


@dataclass
class Waiting(Cluster):
    """Workers that wait, then return the rows of a batch that was played once."""

    workers: int
    seconds: float
    played: Sequence[Row]
    driver: float = 0.0  # seconds that it kept the results
    begun: float = 0.0  # when it handed out the first batch

    def map(self, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        assert function is _play
        self.begun = time.perf_counter()
        with ThreadPoolExecutor(self.workers) as pool:
            futures = {pool.submit(self._wait, *item): number for number, item in enumerate(items)}
            for future in as_completed(futures):
                before = time.perf_counter()
                yield futures[future], future.result()
                self.driver += time.perf_counter() - before

    def _wait(self, name: str, piece: Job) -> tuple[list[Row], dict[str, bytes]]:
        time.sleep(self.seconds)
        pairs = zip(self.played, piece.instances, strict=False)
        return [replace(row, instance=instance.id) for row, instance in pairs], {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--seconds", type=float, default=0.2, help="that a batch takes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    result = measure(options.workers, options.seconds, options.repeats)
    print(json.dumps(result, indent=2) if options.json else describe(result))


def measure(workers: Sequence[int], seconds: float, repeats: int) -> dict[str, Any]:
    cell, protocol = Cell("reacher", "lewm"), Protocol.of(Cell("reacher", "lewm").task_class.setup, episodes=200)
    spec = SearchSpec.usual(cell.task_class.setup)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            "reacher", (CellContender(cell, "noop", None, spec),), cell.instances(protocol), protocol, Path(folder)
        )
        first = replace(job, instances=job.instances[:EPISODES])
        rows, _ = _play("benchmark", first)
        size = len(rows[0].to_json().__repr__())
        found: dict[int, list[float]] = {count: [] for count in workers}
        driver: list[float] = []
        opening: list[float] = []
        for repeat in range(repeats):
            for count in workers:
                cluster = Waiting(count, seconds, rows)
                fresh = replace(job, results=Path(folder) / f"{repeat}-{count}", batch=EPISODES)
                before = time.perf_counter()
                cluster.run([fresh], lambda done, total: None)
                found[count].append(time.perf_counter() - before)
                driver.append(cluster.driver / len(fresh.batches))
                opening.append(cluster.begun - before)
    cost, start = statistics.median(driver), statistics.median(opening)
    batches = len(range(0, 200, EPISODES))
    return {
        "seconds_of_a_batch": seconds,
        "driver_seconds_of_a_batch": cost,
        "seconds_before_the_first": start,
        "bytes_of_a_row": size,
        "points": [
            {
                "workers": count,
                "measured": statistics.median(times),
                "least": min(times),
                "most": max(times),
                "simulated": start + simulate(count, batches, seconds, cost),
            }
            for count, times in found.items()
        ],
    }


def simulate(workers: int, batches: int, seconds: float, driver: float) -> float:
    """Seconds until all batches are written: workers take the next batch when free, the driver writes one at a time."""
    free, written = [0.0] * min(workers, batches), 0.0
    ends = []
    for _ in range(batches):
        end = heapq.heappop(free) + seconds
        heapq.heappush(free, end)
        ends.append(end)
    for end in sorted(ends):
        written = max(written, end) + driver
    return written


def describe(result: dict[str, Any]) -> str:
    lines = [
        f"200 episodes in batches of {EPISODES} that take {result['seconds_of_a_batch']:.2f} s; "
        f"the driver needs {result['driver_seconds_of_a_batch'] * 1000:.1f} ms for one, and "
        f"{result['seconds_before_the_first']:.2f} s before the first; "
        f"a row has about {result['bytes_of_a_row']} bytes"
    ]
    for point in result["points"]:
        lines.append(
            "{workers:5} workers   measured {measured:6.2f} s ({least:.2f} to {most:.2f})   "
            "simulated {simulated:6.2f} s".format(**point)
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
