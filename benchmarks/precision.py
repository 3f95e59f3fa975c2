"""What products in bfloat16 change for the shipped world models: ACID's costs, who the elites are, and the time.

The first candidates of one search on held-out problems, the same in every precision: rank correlation of their costs
with those in float32, the share of elites that stay elites, and processor seconds over those of float32, in turns.

    python benchmarks/precision.py [--cells pusht/lewm rope/dinowm] [--problems 8] [--repeats 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import closing

import numpy as np
import torch
from torch import Tensor

from acid import tasks
from acid.evaluation import Bench, Cell, Protocol, SearchSpec, shipped
from acid.evaluation.agents import observed
from acid.evaluation.play import render_states
from acid.planning import Adaptive, Cost, Planner
from acid.planning.observer import Iteration
from acid.planning.precision import NAMES
from acid.types import Problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=[n for n in shipped() if "nwm" not in n], metavar="TASK/MODEL")
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| | | rank correlation | elites the same | CPU time / float32 |", "|---" * 5 + "|", sep="\n")
    for name in options.cells:
        for row in rows(Cell(*name.split("/")), options.problems, options.repeats):
            print(f"| {name} | {row} |", flush=True)


def rows(cell: Cell, count: int, repeats: int) -> list[str]:
    setup = cell.task_class.setup
    spec = SearchSpec.usual(setup, iterations=1)
    bench = Bench(cell, spec, Protocol.of(setup, episodes=count, split="test"))
    shown = [one_iteration(bench, problem, seed, repeats) for seed, problem in enumerate(problems(bench))]
    found = []
    for precision in NAMES[1:]:
        pairs = [(one["float32"], one[precision]) for one in shown]
        ranks = statistics.mean(correlation(single[0], narrow[0]) for single, narrow in pairs)
        kept = statistics.mean(len(single[1] & narrow[1]) / len(single[1]) for single, narrow in pairs)
        ratios = [narrow[2] / single[2] for single, narrow in pairs]
        times = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        found.append(f"{precision} | {ranks:.3f} | {kept:.0%} | {times}")
    return found


def problems(bench: Bench) -> list[Problem]:
    """Held-out problems, encoded in float32."""
    model, found = bench.kit.model, []
    with closing(tasks.make(bench.cell.task, size=model.observation_size)) as task, torch.no_grad():
        for one in bench.cell.instances(bench.protocol):
            goal, *seen = render_states(task, np.concatenate([one.goal_state[None], one.seen]))
            frames = np.stack(seen) if len(seen) > 1 else seen[0]
            found.append(Problem(*(model.encode(observed(model, image[None])) for image in (frames, goal))))
    return found


def one_iteration(bench: Bench, problem: Problem, seed: int, repeats: int) -> dict[str, tuple[Tensor, set[int], float]]:
    """In every precision: the costs [N] of the first candidates, their elites, and median CPU seconds."""
    cost = Cost([bench.kit.goal(), bench.kit.consistency(Adaptive(0.2))])
    shown: list[Iteration] = []
    planners = {p: bench.kit.planner(cost, bench.spec, precision=p, observer=shown.append) for p in NAMES}
    found = {name: judged(planner, problem, seed, shown) for name, planner in planners.items()}  # this warms up, too
    seconds: dict[str, list[float]] = {name: [] for name in planners}
    for _ in range(repeats):
        for name, planner in planners.items():
            began = time.process_time()
            planner.solve(problem, seed=seed)
            seconds[name].append(time.process_time() - began)
    return {name: (*found[name], statistics.median(seconds[name])) for name in planners}


def judged(planner: Planner, problem: Problem, seed: int, shown: list[Iteration]) -> tuple[Tensor, set[int]]:
    shown.clear()
    planner.solve(problem, seed=seed)
    return shown[0].total[0], set(shown[0].elites[0].tolist())


def correlation(one: Tensor, other: Tensor) -> float:
    return torch.corrcoef(torch.stack([one, other]).argsort().argsort().float())[0, 1].item()


if __name__ == "__main__":
    main()
