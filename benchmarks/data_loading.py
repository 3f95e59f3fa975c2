"""Does training wait for data? Random windows read from disk against the time of one training step.

Reads batches of windows at random, alone and ahead of training, and sets them beside a training step:
the seconds given by --step-seconds, or those of a small convolutional encoder's step measured in the same run.

    python benchmarks/data_loading.py [--data episodes.h5] [--step-seconds 0.3] [--workers 2] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from acid.data import Episodes, EpisodeWriter, Shuffle, Windows, read_ahead, split

EPISODES, STEPS = 60, 200  # of the synthetic dataset


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        path = options.data or write_synthetic(Path(folder) / "synthetic.h5", options.size)
        with Episodes(path, require=("action", "pixels")) as episodes:
            result = measure(episodes, options)
    print(json.dumps(result, indent=2) if options.json else describe(result))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="an episode file (default: a synthetic one, deleted afterwards)")
    parser.add_argument("--step-seconds", type=float, help="how long your training step takes (default: measured)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--frameskip", type=int, default=5)
    parser.add_argument("--size", type=int, default=64, help="pixels of the synthetic images")
    parser.add_argument("--batches", type=int, default=10, help="batches per measurement")
    parser.add_argument("--workers", type=int, default=0, help="processes that read ahead (0: a thread)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def measure(episodes: Episodes, options: argparse.Namespace) -> dict[str, float | str]:
    windows = Windows(episodes, split(len(episodes)).train, options.frames, options.frameskip)
    order, steps = Shuffle(len(windows), options.batch_size, seed=0), count()

    def read(step: int) -> Tensor:
        return torch.from_numpy(episodes.read("pixels", windows.frame_rows(order.indices(step))))

    alone = median_seconds(lambda: read(next(steps)), options.batches)
    stream = read_ahead(read, workers=options.workers)
    step = training_step(next(stream))
    step_seconds = options.step_seconds or median_seconds(step, options.batches)
    # What reading ahead leaves: how long a training loop stands still for its next batch.
    waits = []
    for _ in range(options.batches):
        time.sleep(options.step_seconds) if options.step_seconds else step()
        begun = time.perf_counter()
        next(stream)
        waits.append(time.perf_counter() - begun)
    stream.close()
    return {
        "windows_per_second": options.batch_size / alone,
        "seconds_read": alone,
        "seconds_step": step_seconds,
        "step_is": "given" if options.step_seconds else "convolutional stand-in",
        "read_over_step": alone / step_seconds,
        "seconds_waited": statistics.median(waits),
        "waited_over_step": statistics.median(waits) / step_seconds,
    }


def describe(result: dict[str, float | str]) -> str:
    return (
        "reading a random batch  {seconds_read:8.4f} s  ({windows_per_second:.0f} windows per second)\n"
        "a training step         {seconds_step:8.4f} s  ({step_is})\n"
        "ratio                   {read_over_step:8.3f}    without reading ahead\n"
        "waiting when read ahead {seconds_waited:8.4f} s  ({waited_over_step:.3f} of a step)"
    ).format(**result)


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    run()  # warm up
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def training_step(pixels: Tensor) -> Callable[[], None]:
    """A step of the smallest encoder one would train: four strided convolutions, forward, backward and AdamW."""
    widths = (3, 32, 64, 128, 256)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GELU()]
    encoder = nn.Sequential(*layers)
    optimiser = torch.optim.AdamW(encoder.parameters())
    images = pixels.flatten(0, 1).permute(0, 3, 1, 2)

    def step() -> None:
        optimiser.zero_grad()
        encoder(images.float() / 255).square().mean().backward()
        optimiser.step()

    return step


def write_synthetic(path: Path, size: int) -> Path:
    """Episodes that compress about like rendered ones: a shaded chequerboard and a moving disc."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size] * (64 / size)
    floor = ((x // 8 + y // 8) % 2 * 30 + np.hypot(x - 32, y - 32) * 1.5 + 60)[..., None] * [0.5, 0.7, 1.1]
    with EpisodeWriter(path) as writer:
        for _ in range(EPISODES):
            centres = 32 + 20 * np.sin(np.cumsum(rng.normal(0, 0.1, (STEPS, 2)), axis=0) + rng.uniform(0, 6, 2))
            distance = np.hypot(x - centres[:, 0, None, None], y - centres[:, 1, None, None])[..., None]
            pixels = np.where(distance < 10, 200 - 8 * distance, floor).clip(0, 255).astype(np.uint8)
            writer.write({"pixels": pixels, "action": rng.normal(size=(STEPS, 2)).astype(np.float32)})
    return path


if __name__ == "__main__":
    main()
