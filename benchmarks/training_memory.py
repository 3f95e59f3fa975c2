"""Memory and time of one training step at the published size, with and without a limit on the frames at once.

Le-WM or PLDM, random frames, one thread; each measurement in a process of its own, because memory is only given back
then. Time is processor time.

    python benchmarks/training_memory.py [--model lewm] [--batch 128] [--micro-batches 2 8 32] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import torch

from acid import models
from acid.models import Batch
from acid.training import recipe
from acid.types import ActionScaler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("lewm", "pldm"), default="lewm")
    parser.add_argument("--batch", type=int, default=128, help="windows of a batch")
    parser.add_argument("--micro-batches", type=int, nargs="*", default=[2, 8, 32], help="windows at once; 0: all")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)  # one measurement, in this process
    options = parser.parse_args()
    if options.alone is not None:
        print(json.dumps(measure(options.model, options.batch, options.alone)))
        return
    command = [sys.executable, __file__, "--model", options.model, "--batch", str(options.batch), "--alone"]
    results = [
        json.loads(subprocess.run([*command, str(size)], check=True, capture_output=True, text=True).stdout)
        for size in options.micro_batches
    ]
    print(json.dumps(results, indent=2) if options.json else "\n".join(map(describe, results)))


def measure(name: str, batch: int, micro: int) -> dict[str, float]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chosen, scaler = recipe("model", name, "paper"), ActionScaler((0.0, 0.0), (1.0, 1.0), 5)
    model = models.build(name, "paper", scaler)
    loss = models.KINDS[name].loss(chosen.loss, model)
    if micro:
        model.limit_frames(micro * (model.config.history + 1))
    side = model.observation_size
    frames = torch.randint(256, (batch, model.config.history + 1, side, side, 3), dtype=torch.uint8)
    actions = torch.randn(batch, model.config.history, scaler.size)
    before, started = peak(), time.process_time()
    loss(model, Batch(frames, actions))["loss"].backward()
    return {
        "batch": batch,
        "micro_batch": micro,
        "mebibytes": peak(),
        "mebibytes_before": before,
        "cpu_seconds": time.process_time() - started,
    }


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def describe(result: dict[str, float]) -> str:
    at_once = f"{result['micro_batch']:.0f} at once" if result["micro_batch"] else "all at once"
    return f"batch {result['batch']:.0f}, {at_once:12} {result['mebibytes']:7.0f} MiB   {result['cpu_seconds']:6.1f} s"


if __name__ == "__main__":
    main()
