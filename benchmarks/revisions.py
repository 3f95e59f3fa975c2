"""CPU seconds of planning an episode, of an earlier revision of this repository beside the present one.

Both play the same held-out problems of the shipped cells, in processes of their own that take turns. Seconds are those
of planning in the rows that are written, without simulator and start. What is compared is one turn with the next.
Navigation is left out: where conditions share a pool, rows know the time on the clock only.

    python benchmarks/revisions.py 642a141^ [--cells reacher/lewm rope/dinowm] [--episodes 2] [--repeats 3]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CELLS = ("reacher/lewm", "pusht/lewm", "cube/lewm", "rope/dinowm", "granular/dinowm")
CONDITIONS = ("original", "acid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a revision, e.g. 642a141^")
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="TASK/MODEL")
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        trees = (unpacked(options.before, Path(room, "before")), ROOT)
        print("| | | before, CPU-s | now, CPU-s | now / before | episodes per CPU-hour: before | now |")
        print("|---" * 7 + "|", flush=True)
        for cell in options.cells:
            turns = [
                [seconds(tree, cell, options.episodes, Path(room, f"{turn}-{side}")) for side, tree in enumerate(trees)]
                for turn in range(options.repeats)
            ]
            for condition in CONDITIONS:
                print(row(cell, condition, [[own[condition] for own in turn] for turn in turns]), flush=True)


def unpacked(revision: str, folder: Path) -> Path:
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", revision, "src"], check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def seconds(tree: Path, cell: str, episodes: int, results: Path) -> dict[str, float]:
    """CPU seconds of planning an episode by condition, with the code and weights of this tree."""
    task, model = cell.split("/")
    command = ["eval", task, "--model", model, "--conditions", *CONDITIONS, "--episodes", str(episodes)]
    subprocess.run(
        [sys.executable, "-c", "from acid.cli import main; main()", *command, "--results", str(results)],
        env=os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    found: dict[str, list[float]] = {}
    for file in sorted(results.glob(f"{cell}/**/*.jsonl")):
        for line in file.read_text().splitlines():
            told = json.loads(line)
            found.setdefault(told["condition"], []).append(told["plan_cpu_seconds"])
    return {condition: statistics.mean(values) for condition, values in found.items()}


def row(cell: str, condition: str, turns: list[list[float]]) -> str:
    before, now = (statistics.median(column) for column in zip(*turns, strict=True))
    ratios = [own / other for other, own in turns]
    ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    hourly = " | ".join(f"{3600 / value:.0f}" for value in (before, now))
    return f"| {cell} | {condition} | {before:.2f} | {now:.2f} | {ratio} | {hourly} |"


if __name__ == "__main__":
    main()
