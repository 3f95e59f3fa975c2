"""What the verifier adds where a frame is many tokens: its time per CEM iteration as a share of the rollout's.

DINO-WM at its lite size (36 tokens), or --scale paper (196 tokens), random weights; the verifier reads the two frames
in three ways: as 2·P tokens (as published), merged to one token each, or with convolutions over the pair of maps.

    python benchmarks/token_verifier.py [--scale paper] [--samples 200] [--horizon 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from acid.models import dinowm
from acid.models.dinowm import TokenDynamics
from acid.training import recipe
from acid.verifier import LITE, PAPER, FlowConfig
from acid.verifier.flow import ActionFlow

ACTION = 4
TOKENS = {"lite": 36, "paper": 196}
SIZES = {"lite": LITE, "paper": PAPER}
CHANNELS = recipe("verifier", "dinowm").channels
READINGS = {"tokens": {}, "merged": {"merge": True}, "convolutions": {"channels": CHANNELS}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=TOKENS, default="lite")
    parser.add_argument("--samples", type=int, default=200, help="N, candidates per iteration")
    parser.add_argument("--horizon", type=int, default=5, help="H, pushes per plan")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each, the median counts")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result = measure(options.scale, options.samples, options.horizon, options.repeats)
    print(json.dumps(result, indent=2) if options.json else describe(result))


@torch.no_grad()
def measure(scale: str, samples: int, horizon: int, repeats: int) -> dict[str, float]:
    torch.manual_seed(0)
    tokens, config = TOKENS[scale], dinowm.PRESETS[scale](ACTION)
    dynamics = TokenDynamics(config, tokens).eval()
    start, actions = torch.randn(samples, tokens, config.latent_size), torch.randn(samples, horizon, ACTION)
    imagined = torch.randn(samples, horizon + 1, tokens, config.latent_size)
    flows = {
        name: ActionFlow(FlowConfig(config.latent_size, tokens, ACTION, SIZES[scale], **options)).eval()
        for name, options in READINGS.items()
    }
    work: dict[str, Callable[[], Tensor]] = {"rollout": lambda: dynamics.unroll(start, actions)}
    work |= {name: lambda flow=flow: flow.infer(imagined[:, :-1], imagined[:, 1:]) for name, flow in flows.items()}
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):  # one after the other, so that a busy machine slows all alike
        for name, run in work.items():
            began = time.process_time()
            run()
            found[name].append(time.process_time() - began)
    seconds = {name: statistics.median(values) for name, values in found.items()}
    shares = {f"share_{name}": seconds[name] / seconds["rollout"] for name in READINGS}
    return {f"seconds_{name}": value for name, value in seconds.items()} | shares


def describe(result: dict[str, float]) -> str:
    lines = [f"rollout of one iteration: {result['seconds_rollout']:.3f} CPU-s"]
    lines += [
        f"verifier, {name}: {result[f'seconds_{name}']:.3f} CPU-s, {result[f'share_{name}']:.1%} of the rollout"
        for name in READINGS
    ]
    return "\n".join([*lines, "published for DINO-WM: 39.4 % on a GPU"])


if __name__ == "__main__":
    main()
