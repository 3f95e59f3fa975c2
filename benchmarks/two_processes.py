"""What does sharing a batch cost? CPU time of a training step by one process, and by two that have half of it each.

Le-WM at its lite size on frames of noise, gloo, one thread each. CPU time of both processes together against that of
one: what is above 1 is communication and work that both do. Waiting for the other does not count. Steps of one and of
two processes take turns.

    python benchmarks/two_processes.py [--batch 48] [--steps 6] [--repeats 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from itertools import count
from typing import Any

import torch
from torch import nn

from acid import distributed, models
from acid.loop import LoopConfig, train
from acid.models import Batch
from acid.training import recipe
from acid.types import ActionScaler

SCALER = ActionScaler((0.0, 0.0), (1.0, 1.0), 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=48, help="windows of a batch")
    parser.add_argument("--steps", type=int, default=6, help="of a repetition")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    command += ["--worker", "--batch", str(options.batch), "--steps", str(options.steps)]
    command += ["--repeats", str(options.repeats)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(told)
    print(json.dumps(result, indent=2) if options.json else describe(result))


def work(options: argparse.Namespace) -> None:
    """In both processes: by turns the first alone on the whole batch, and both on their halves."""
    torch.set_num_threads(1)
    alone, together = [], []
    with distributed.group(torch.device("cpu")):
        for _ in range(options.repeats):
            if distributed.first():
                alone.append(seconds(options, by_itself=True))
            distributed.wait()
            own = torch.tensor(seconds(options, by_itself=False))
            torch.distributed.all_reduce(own)
            together.append(float(own))
        if distributed.first():
            ratios = [both / one for one, both in zip(alone, together, strict=True)]
            summary = {"alone": alone, "together": together, "ratios": ratios}
            print(json.dumps({"batch": options.batch, **summary}))


def seconds(options: argparse.Namespace, *, by_itself: bool) -> float:
    """CPU seconds of this process for a step; the first steps do not count."""
    torch.manual_seed(0)
    chosen, kind = recipe("model", "lewm"), models.KINDS["lewm"]
    model = models.build("lewm", "lite", SCALER)
    loss = kind.loss(chosen.loss, model)
    side, frames = model.observation_size, model.config.history + 1
    size = options.batch if by_itself else options.batch // 2
    pixels = torch.randint(256, (size, frames, side, side, 3), dtype=torch.uint8)
    batch = Batch(pixels, torch.randn(size, frames - 1, SCALER.size))
    marks: list[float] = []

    def batches(start: int) -> Any:
        for _ in count(start):
            marks.append(time.process_time())
            yield batch

    module = nn.ModuleDict({"model": model, "loss": loss})
    config = LoopConfig(steps=options.steps + 3, batch_size=options.batch)
    if by_itself:
        with Alone():
            train(module, lambda b: loss(model, b), batches, config)
    else:
        train(module, lambda b: loss(model, b), batches, config)
    return (marks[-1] - marks[2]) / (len(marks) - 3)


class Alone:
    """As if this process had no others."""

    def __enter__(self) -> None:
        self.together, distributed.together = distributed.together, Alone._nothing
        self.told, distributed.told_by_first = distributed.told_by_first, lambda make: make()

    def __exit__(self, *_: object) -> None:
        distributed.together, distributed.told_by_first = self.together, self.told

    @staticmethod
    def _nothing() -> Any:
        from contextlib import nullcontext

        return nullcontext()


def describe(result: dict[str, Any]) -> str:
    one, both = (statistics.median(result[name]) for name in ("alone", "together"))
    ratios = result["ratios"]
    return (
        f"a step of {result['batch']} windows: {one:.3f} CPU-s by one process, {both:.3f} by two together\n"
        f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} repeats), "
        f"efficiency {1 / statistics.median(ratios):.0%}"
    )


if __name__ == "__main__":
    main()
