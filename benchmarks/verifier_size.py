"""How small may a verifier of one-vector latents be?

Push-T episodes are collected, encoded by the shipped Le-WM, and verifiers of several sizes are fitted to the same
transitions. For each: mean R² on held-out episodes, and processor milliseconds to check N 300 candidates of H 5 steps,
beside the world model's rollout of them. Times are medians of interleaved repetitions on one thread.

    python benchmarks/verifier_size.py [--episodes 150] [--steps 1500]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from acid import models, tasks
from acid.evaluation.cells import ASSETS
from acid.tasks.collect import record_episode
from acid.verifier import LITE, SMALL, FitConfig, TransformerSize, Verifier

SIZES = {
    "lite": LITE,
    "two layers of 48": TransformerSize(48, 2, 2, 2),
    "small (the default)": SMALL,
    "one layer of 32": TransformerSize(32, 1, 2, 2),
    "one layer of 96": TransformerSize(96, 1, 3, 4),
}
CANDIDATES, HORIZON = 300, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=150)
    parser.add_argument("--steps", type=int, default=1500, help="of each fit")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = models.load(ASSETS / "pusht" / "lewm" / "model")
    latents, actions, ids = table(model, options.episodes)
    fitted = {
        name: Verifier.fit(
            latents,
            actions,
            ids,
            frameskip=model.scaler.frameskip,
            size=size,
            training=FitConfig(steps=options.steps),
            scaler=model.scaler,
            progress=lambda *_: None,
        )
        for name, size in SIZES.items()
    }
    candidates = torch.randn(1, CANDIDATES, HORIZON, model.scaler.size)
    with torch.no_grad():
        imagined = model.rollout(latents[:1], candidates)
    start = torch.cat([latents[:1, None, None].expand(-1, CANDIDATES, 1, -1, -1), imagined[:, :, :-1]], 2)
    works: dict[str, Callable[[], object]] = {"rollout": lambda: model.rollout(latents[:1], candidates)}
    works |= {name: lambda v=verifier: v.infer(start, imagined) for name, verifier in fitted.items()}
    seconds = times(works)
    print(f"{'':20} {'mean R²':>8} {'ms':>7} {'of the rollout':>15}")
    for name, verifier in fitted.items():
        share = seconds[name] / seconds["rollout"]
        print(f"{name:20} {verifier.report.mean_r2:8.3f} {1000 * seconds[name]:7.1f} {share:15.0%}")
    print(f"{'Le-WM rollout':20} {'':8} {1000 * seconds['rollout']:7.1f}")


def table(model: models.LearnedWorldModel, episodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Latents [M, 1, D], blocks of actions [M, A] (NaN where a block would leave its episode) and episode ids [M]."""
    task, rows = tasks.make("pusht", size=model.observation_size), []
    for index in range(episodes):
        episode = record_episode(task, 0, index)
        skip, acted = model.scaler.frameskip, torch.from_numpy(episode["action"])
        padded = torch.cat([acted, acted.new_full((skip - 1, acted.shape[1]), torch.nan)])
        blocks = torch.cat([padded[k : k + len(acted)] for k in range(skip)], 1)
        with torch.no_grad():
            seen = torch.cat([model.encode(part) for part in torch.from_numpy(episode["pixels"]).split(100)])
        rows.append((seen, blocks, torch.full((len(acted),), index)))
    latents, actions, ids = (torch.cat(column) for column in zip(*rows, strict=True))
    return latents, actions, ids


@torch.no_grad()
def times(works: dict[str, Callable[[], object]], repeats: int = 15) -> dict[str, float]:
    """Median processor seconds of each."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            began = time.process_time()
            work()
            found[name].append(time.process_time() - began)
    return {name: float(np.median(values)) for name, values in found.items()}


if __name__ == "__main__":
    main()
