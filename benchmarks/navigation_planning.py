"""What does the verifier cost in navigation? CPU time of rolling out, judging and verifying one pool of candidates.

The paper's figure is the verifier's share of the rollout, 33.7 % (67.3 of 199.9 ms, on its GPU and with its models).
Untrained networks of the `lite` sizes take as long as trained ones; --folder measures a cell of your own.

    python benchmarks/navigation_planning.py [--samples 80] [--repeats 3] [--runs 3] [--folder FOLDER] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from acid import models
from acid.data.poses import SCALER
from acid.models import NavigationWorldModel
from acid.models.compact import CompactTokenizer, lite
from acid.nn.lpips import load_lpips
from acid.planning import ActionConsistency, DecodedDistance, VerifierView
from acid.training import recipe
from acid.types import Trajectory
from acid.verifier import Verifier
from acid.verifier.flow import FlowConfig

PUBLISHED = 0.337
HORIZON = 8


def main() -> None:
    options = parse_options()
    torch.set_num_threads(1)
    result = measure(*load(options.folder), options.samples, options.repeats, options.runs)
    print(json.dumps(result, indent=2) if options.json else describe(result))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=80, help="candidates N")
    parser.add_argument("--repeats", type=int, default=3, help="rollouts of each candidate")
    parser.add_argument("--runs", type=int, default=3, help="measurements, of which the median counts")
    parser.add_argument("--folder", type=Path, help="a trained cell")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def load(folder: Path | None) -> tuple[NavigationWorldModel, Verifier]:
    if folder is not None:
        return cast(NavigationWorldModel, models.load(folder / "model")), Verifier.load(folder / "verifier")
    torch.manual_seed(0)
    model = cast(NavigationWorldModel, models.build("nwm", "lite", SCALER, tokenizer=CompactTokenizer(lite()).eval()))
    settings = recipe("verifier", "nwm")
    tokens, size = model.tokenizer.features(torch.zeros(1, 16, 6)).shape[1:]
    config = FlowConfig(size, tokens, 3, settings.network, steps=settings.euler_steps, channels=settings.channels)
    return model.eval(), Verifier(config, SCALER).ready()


def measure(
    model: NavigationWorldModel, verifier: Verifier, samples: int, repeats: int, runs: int
) -> dict[str, float | int]:
    size = model.observation_size
    frames = torch.randint(256, (1, 4, size, size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    start = model.encode(frames)
    actions = 0.05 * torch.randn(1, samples, HORIZON, 3, generator=torch.Generator().manual_seed(1))
    assert verifier.scaler is not None
    ours, theirs = model.scaler, verifier.scaler
    view = VerifierView(verifier, model.tokenizer.features, lambda a: theirs.normalise(ours.denormalise(a)))
    consistency = ActionConsistency(view)
    goal = DecodedDistance(model.decode, load_lpips())

    def roll_out() -> Tensor:
        return torch.cat([model.rollout(start, actions, seeds=[k]) for k in range(repeats)], 1)

    imagined = roll_out()
    observed = start[:, None, -1:].expand(-1, samples * repeats, -1, -1, -1)
    trajectory = Trajectory(torch.cat([observed, imagined], 2), actions.repeat(1, repeats, 1, 1))
    seconds: dict[str, list[float]] = {"rollout": [], "goal": [], "verifier": []}
    with torch.no_grad():
        for _ in range(runs):  # in turn, so that what else the machine does meets all of them
            seconds["rollout"].append(timed(roll_out))
            seconds["goal"].append(timed(lambda: goal(trajectory, start[:, -1])))
            seconds["verifier"].append(timed(lambda: consistency(trajectory, start[:, -1])))
    median = {name: float(np.median(values)) for name, values in seconds.items()}
    return {
        "samples": samples,
        "repeats": repeats,
        "rollout_milliseconds": 1000 * median["rollout"],
        "goal_milliseconds": 1000 * median["goal"],
        "verifier_milliseconds": 1000 * median["verifier"],
        "verifier_of_rollout": median["verifier"] / median["rollout"],
        "verifier_of_all": median["verifier"] / sum(median.values()),
    }


def timed(action: Callable[[], object]) -> float:
    before = time.process_time()
    action()
    return time.process_time() - before


def describe(result: dict[str, float | int]) -> str:
    return "\n".join(
        [
            f"{result['samples']} candidates × {result['repeats']} rollouts × {HORIZON} steps, one core, CPU time",
            f"rollout       {result['rollout_milliseconds']:8.0f} ms",
            f"goal (LPIPS)  {result['goal_milliseconds']:8.0f} ms",
            f"verifier      {result['verifier_milliseconds']:8.0f} ms",
            f"verifier / rollout  {result['verifier_of_rollout']:.1%}   (paper: {PUBLISHED:.1%})",
            f"verifier / all      {result['verifier_of_all']:.1%}",
        ]
    )


if __name__ == "__main__":
    main()
