"""How long is one CEM iteration of a Le-WM of the published size, without and with ACID?

One problem, one thread, N 300, H 5, K 30, random weights. Where stable-worldmodel is installed (see peer.py for the
few packages that takes), its own CEM solver runs on the same weights in between, and both must give the same costs to
the same candidates. Times are processor seconds between successive cost evaluations, so that encoding does not count
and other programs on the machine disturb little; each is the median over interleaved repetitions.

    python benchmarks/planning.py [--repeats 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import peer
import torch
from torch import Tensor, nn

from acid import models
from acid.models import JepaWorldModel
from acid.planning import CEM, Cost, Planner, acid_cost, goal_cost
from acid.types import ActionScaler, Problem
from acid.verifier import PAPER, FlowConfig, Verifier

HORIZON = 5
SCALER = ActionScaler(mean=(0.0, 0.0), std=(1.0, 1.0), frameskip=5)


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    result = measure(options)
    print(json.dumps(result, indent=2) if options.json else describe(result))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=300, help="N")
    parser.add_argument("--elites", type=int, default=30, help="K")
    parser.add_argument("--iterations", type=int, default=4, help="CEM iterations per repetition")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, float | None]:
    model, verifier = random_models()
    image, goal = torch.randint(256, (2, *[model.config.encoder.image_size] * 2, 3), dtype=torch.uint8)
    with torch.no_grad():
        problem = Problem(model.encode(image[None]), model.encode(goal[None]))

    rollouts, inferences = Calls(model.rollout), Calls(verifier.infer)
    model.rollout, verifier.infer = rollouts, inferences  # pyright: ignore[reportAttributeAccessIssue]
    search = CEM(options.samples, options.iterations, options.elites)

    def run(cost: Cost) -> None:
        Planner(model, cost, search, horizon=HORIZON).solve(problem)

    contestants: dict[str, tuple[Calls, Callable[[], object]]] = {
        "original": (rollouts, lambda: run(goal_cost())),
        "acid": (rollouts, lambda: run(acid_cost(verifier))),
    }
    for _, contestant in contestants.values():
        contestant()  # warms up, and shows how much memory we need before anything else is imported
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    difference = None
    if peer.installed():
        other = peer.Peer.like(model)
        difference = largest_cost_difference(model, other, image, goal, options.samples)
        evaluations = other.model.get_cost = Calls(other.model.get_cost)
        contestants["peer"] = (
            evaluations,
            lambda: other.solve(
                image,
                goal,
                samples=options.samples,
                elites=options.elites,
                iterations=options.iterations + 1,
                shape=(HORIZON, SCALER.size),
            ),
        )
    inferences.clear()
    seconds = interleave(contestants, options.repeats)
    return summarise(seconds, statistics.median(inferences.durations), peak, difference)


def random_models() -> tuple[JepaWorldModel, Verifier]:
    model = models.build("lewm", "paper", SCALER).eval().requires_grad_(False)
    for block in model.dynamics[0].predictor.blocks:  # zero after initialisation: every block would be the identity
        nn.init.normal_(block.modulation.weight, std=0.02)
        nn.init.normal_(block.modulation.bias, std=0.1)
    return model, Verifier(FlowConfig(model.config.latent_size, 1, SCALER.size, PAPER)).ready()


class Calls:
    """A function that remembers when it was called and how long it took, in processor seconds."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.clear()

    def clear(self) -> None:
        self.starts: list[float] = []
        self.durations: list[float] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.starts.append(time.process_time())
        result = self.function(*args, **kwargs)
        self.durations.append(time.process_time() - self.starts[-1])
        return result

    @property
    def periods(self) -> list[float]:
        """Seconds from each call to the next, but for the first: it may be slower (encoding, cold caches)."""
        return [after - before for before, after in zip(self.starts[1:], self.starts[2:], strict=False)]


def interleave(contestants: dict[str, tuple[Calls, Callable[[], object]]], repeats: int) -> dict[str, float]:
    """Median seconds per iteration of each contestant, all of them taking turns."""
    periods: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, (calls, run) in contestants.items():
            calls.clear()
            run()
            periods[name] += calls.periods
    return {name: statistics.median(values) for name, values in periods.items()}


def largest_cost_difference(model: JepaWorldModel, other: peer.Peer, image: Tensor, goal: Tensor, count: int) -> float:
    candidates = torch.randn(count, HORIZON, SCALER.size)
    with torch.no_grad():
        imagined = model.rollout(model.encode(image[None]), candidates[None])[0, :, -1]
        costs = (imagined - model.encode(goal[None])).square().sum((-2, -1))
    return (costs - other.costs(image, goal, candidates)).abs().max().item()


def summarise(
    seconds: dict[str, float], verifier: float, peak: float, difference: float | None
) -> dict[str, float | None]:
    peer_seconds = seconds.get("peer")
    return {
        "seconds_original": seconds["original"],
        "seconds_acid": seconds["acid"],
        "verifier_share": verifier / seconds["acid"],
        "peak_mebibytes": peak,
        "peer_seconds": peer_seconds,
        "original_over_peer": None if peer_seconds is None else seconds["original"] / peer_seconds,
        "acid_over_peer": None if peer_seconds is None else seconds["acid"] / peer_seconds,
        "largest_cost_difference": difference,
    }


def describe(result: dict[str, float | None]) -> str:
    lines = [
        "one CEM iteration, Le-WM at the published size",
        "  goal cost alone     {seconds_original:7.3f} s",
        "  with ACID           {seconds_acid:7.3f} s   of which verifier {verifier_share:.1%}",
        "  peak memory         {peak_mebibytes:7.0f} MiB",
    ]
    if result["peer_seconds"] is None:
        lines.append("  stable-worldmodel is not installed; benchmarks/peer.py says how")
    else:
        lines += [
            "  stable-worldmodel   {peer_seconds:7.3f} s",
            "  ours over theirs    {original_over_peer:7.2f}     with ACID {acid_over_peer:.2f}",
            "  same candidates, largest difference of a cost: {largest_cost_difference:.1e}",
        ]
    return "\n".join(lines).format(**result)


if __name__ == "__main__":
    main()
