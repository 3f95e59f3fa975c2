"""Time and memory of one CEM iteration against candidates (N), problems (B) and steps (H), without and with ACID.

Le-WM and its verifier with random weights, one thread. Times are processor seconds, the median and the range of
repetitions that take turns. They include the rollout of the plan that the iteration ends with. Memory is what tensors
hold at most at once, besides the networks.

    python benchmarks/curves.py [--scale lite] [--most 1000] [--rows N=3000 H=10] [--repeats 5]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from acid import models
from acid.planning import CEM, Cost, Planner, acid_cost, goal_cost
from acid.planning.memory import PeakMemory
from acid.types import ActionScaler, Problem
from acid.verifier import LITE, PAPER, SMALL, FlowConfig, Verifier

SCALER = ActionScaler(mean=(0.0, 0.0), std=(1.0, 1.0), frameskip=5)
SIZES = {"paper": PAPER, "lite": LITE, "small": SMALL}
USUAL = {"N": 300, "B": 1, "H": 5}
CURVES = {"N": (30, 100, 300, 1000, 3000), "B": (2, 4, 8), "H": (1, 2, 10)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=models.KINDS["lewm"].presets, default="paper", help="of the world model")
    parser.add_argument("--verifier", choices=SIZES, help="default: as the world model")
    parser.add_argument("--most", type=int, default=3000, help="leave out rows of more candidates B·N than this")
    every = [f"{letter}={value}" for letter, values in CURVES.items() for value in values]
    parser.add_argument("--rows", nargs="+", choices=every, default=every, metavar="LETTER=NUMBER", help="default: all")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = models.build("lewm", options.scale, SCALER).eval().requires_grad_(False)
    size = SIZES[options.verifier or options.scale]
    verifier = Verifier(FlowConfig(model.config.latent_size, 1, SCALER.size, size)).ready()
    costs = {"Original": goal_cost(), "ACID": acid_cost(verifier)}
    print(f"Le-WM, {options.scale} size, {options.repeats} repeats; N 300, B 1, H 5 unless the row says otherwise")
    print(
        "| | Original, CPU-s | ACID, CPU-s | ACID / Original | memory, MB: Original | ACID |",
        "|---" * 6 + "|",
        sep="\n",
    )
    for name in options.rows:
        letter, value = name.split("=")
        sizes = USUAL | {letter: int(value)}
        if sizes["N"] * sizes["B"] <= options.most:
            print(row(model, costs, sizes, f"{letter} {value}", options.repeats), flush=True)


def row(model: models.LearnedWorldModel, costs: dict[str, Cost], sizes: dict[str, int], name: str, repeats: int) -> str:
    latents = torch.randn(2, sizes["B"], 1, model.config.latent_size)
    problem = Problem(latents[0], latents[1])
    search = CEM(sizes["N"], iterations=1, elites=10)
    planners = {name: Planner(model, cost, search, horizon=sizes["H"]) for name, cost in costs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in costs}
    memory = [f"{peak(planner, problem) / 1e6:.0f}" for planner in planners.values()]  # this warms up, too
    for _ in range(repeats):
        for cost, planner in planners.items():
            began = time.process_time()
            planner.solve(problem)
            seconds[cost].append(time.process_time() - began)
    ratios = [with_it / without for without, with_it in zip(*seconds.values(), strict=True)]
    times = [f"{statistics.median(v):.3f} ({min(v):.3f} to {max(v):.3f})" for v in seconds.values()]
    return f"| {name} | {' | '.join(times)} | {statistics.median(ratios):.2f} | {' | '.join(memory)} |"


def peak(planner: Planner, problem: Problem) -> int:
    """The most bytes that tensors hold at once."""
    with PeakMemory() as memory:
        planner.solve(problem)
    return memory.peak


if __name__ == "__main__":
    main()
