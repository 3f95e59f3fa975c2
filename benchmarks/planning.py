"""How long is one CEM iteration of a Le-WM of the published size, without and with ACID?

One problem, one thread, N 300, H 5, K 30, random weights. Where stable-worldmodel is installed (see peer.py for the
few packages that takes), its own CEM solver runs on the same weights in between, and both must give the same costs to
the same candidates. Times are processor seconds between successive cost evaluations, so that encoding does not count
and other programs on the machine disturb little. All take turns; a row is the median and the range over the turns.
`--compile` also times networks that torch has compiled. `--narrow` also times products in bfloat16, of the verifier
alone (mixed) and of both networks, and compares the costs. `--profile` also says what operations the time goes to.

    python benchmarks/planning.py [--repeats 5] [--verifier small] [--narrow] [--compile] [--profile]
"""

from __future__ import annotations

import argparse
import copy
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import peer
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from acid import models
from acid.models import JepaWorldModel
from acid.planning import CEM, Cost, Planner, acid_cost, goal_cost
from acid.planning.observer import Iteration
from acid.planning.precision import PrecisionName
from acid.types import ActionScaler, Problem
from acid.verifier import LITE, PAPER, SMALL, FlowConfig, TransformerSize, Verifier

HORIZON = 5
SCALER = ActionScaler(mean=(0.0, 0.0), std=(1.0, 1.0), frameskip=5)
VERIFIERS = {"paper": PAPER, "lite": LITE, "small": SMALL}
NARROW: tuple[PrecisionName, ...] = ("mixed", "bfloat16")
OPERATIONS = {
    "matrix products": ("aten::addmm", "aten::mm", "aten::bmm"),
    "GELU": ("aten::gelu",),
    "copies": ("aten::copy_", "aten::cat"),
    "norms": ("aten::native_layer_norm", "aten::native_batch_norm"),
}


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model, verifier = random_models(VERIFIERS[options.verifier])
    size = [model.config.encoder.image_size] * 2
    image, goal = torch.randint(256, (2, *size, 3), dtype=torch.uint8)
    with torch.no_grad():
        problem = Problem(model.encode(image[None]), model.encode(goal[None]))
    search = CEM(options.samples, options.iterations, options.elites)

    contestants = ours("", model, verifier, problem, search)
    if options.narrow:
        for precision in NARROW:
            narrow = ours(f", {precision}", *copy.deepcopy((model, verifier)), problem, search, precision)
            contestants |= {name: one for name, one in narrow.items() if precision != "mixed" or one.inferences}
    if options.compile:
        contestants |= ours(", compiled", *compiled(model, verifier), problem, search)
    for contestant in contestants.values():
        contestant.run()  # warms up, and shows how much memory we need before anything else is imported
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    beside = "Original"
    if peer.installed():
        beside = "stable-worldmodel"
        other = peer.Peer.like(model)
        difference = largest_cost_difference(model, other, image, goal, options.samples)
        print(f"the same candidates, largest difference between its costs and ours: {difference:.1e}")
        contestants[beside] = theirs(other, image, goal, options)
    else:
        print("stable-worldmodel is not installed; benchmarks/peer.py says how")
    if options.narrow:
        print(*narrow_costs(model, verifier, problem, search), sep="\n")
    turns = interleave(contestants, options.repeats)
    print(table(turns, beside))
    if options.profile:
        for name in ("Original", "ACID"):
            print(f"{name}: " + ", ".join(f"{kind} {share:.0%}" for kind, share in shares(contestants[name]).items()))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=300, help="N")
    parser.add_argument("--elites", type=int, default=30, help="K")
    parser.add_argument("--iterations", type=int, default=4, help="CEM iterations in a turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--verifier", choices=VERIFIERS, default="paper", help="its size")
    parser.add_argument("--narrow", action="store_true", help="also with products in bfloat16")
    parser.add_argument("--compile", action="store_true", help="also with compiled networks: takes minutes to compile")
    parser.add_argument("--profile", action="store_true", help="also print what operations the time goes to")
    return parser.parse_args()


def random_models(size: TransformerSize = PAPER) -> tuple[JepaWorldModel, Verifier]:
    model = models.build("lewm", "paper", SCALER).eval().requires_grad_(False)
    for block in model.dynamics[0].predictor.blocks:  # zero after initialisation: every block would be the identity
        nn.init.normal_(block.modulation.weight, std=0.02)
        nn.init.normal_(block.modulation.bias, std=0.1)
    return model, Verifier(FlowConfig(model.config.latent_size, 1, SCALER.size, size)).ready()


def compiled(model: JepaWorldModel, verifier: Verifier) -> tuple[JepaWorldModel, Verifier]:
    model, verifier = copy.deepcopy((model, verifier))
    model.compile()
    verifier.compile()
    return model, verifier


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
    def period(self) -> float:
        """Median seconds from a call to the next, without the first: it may be slower (encoding, cold caches)."""
        return statistics.median(
            after - before for before, after in zip(self.starts[1:], self.starts[2:], strict=False)
        )


@dataclass
class Contestant:
    run: Callable[[], object]
    evaluations: Calls  # once per iteration
    inferences: Calls | None = None  # of a verifier


def ours(
    suffix: str,
    model: JepaWorldModel,
    verifier: Verifier,
    problem: Problem,
    search: CEM,
    precision: PrecisionName = "float32",
) -> dict[str, Contestant]:
    rollouts, inferences = Calls(model.rollout), Calls(verifier.infer)
    model.rollout, verifier.infer = rollouts, inferences  # pyright: ignore[reportAttributeAccessIssue]

    def contestant(cost: Cost, inferences: Calls | None = None) -> Contestant:
        planner = Planner(model, cost, search, horizon=HORIZON, precision=precision)
        return Contestant(lambda: planner.solve(problem), rollouts, inferences)

    return {"Original" + suffix: contestant(goal_cost()), "ACID" + suffix: contestant(acid_cost(verifier), inferences)}


def theirs(other: peer.Peer, image: Tensor, goal: Tensor, options: argparse.Namespace) -> Contestant:
    evaluations = other.model.get_cost = Calls(other.model.get_cost)
    sizes = {"samples": options.samples, "elites": options.elites, "iterations": options.iterations + 1}
    return Contestant(lambda: other.solve(image, goal, **sizes, shape=(HORIZON, SCALER.size)), evaluations)


def largest_cost_difference(model: JepaWorldModel, other: peer.Peer, image: Tensor, goal: Tensor, count: int) -> float:
    candidates = torch.randn(count, HORIZON, SCALER.size)
    with torch.no_grad():
        imagined = model.rollout(model.encode(image[None]), candidates[None])[0, :, -1]
        costs = (imagined - model.encode(goal[None])).square().sum((-2, -1))
    return (costs - other.costs(image, goal, candidates)).abs().max().item()


def narrow_costs(model: JepaWorldModel, verifier: Verifier, problem: Problem, search: CEM) -> Iterator[str]:
    """How ACID's costs of the first candidates, which are the same, differ from those in single precision."""

    def costs(precision: PrecisionName) -> Tensor:
        seen: list[Iteration] = []
        watch = {"precision": precision, "observer": seen.append}
        Planner(model, acid_cost(verifier), search, horizon=HORIZON, **watch).solve(problem)
        return seen[0].total[0]

    single = costs("float32")
    for precision in NARROW:
        narrow = costs(precision)
        ranks = torch.stack([single, narrow]).argsort().argsort().float()
        same = len(set.intersection(*(set(one.argsort()[: search.elites].tolist()) for one in (single, narrow))))
        yield (
            f"{precision} and float32, the same candidates: rank correlation of ACID's costs "
            f"{torch.corrcoef(ranks)[0, 1]:.3f}, {same} of {search.elites} elites the same"
        )


@dataclass(frozen=True)
class Turn:
    iteration: float  # seconds
    verifier: float | None  # of them


def interleave(contestants: dict[str, Contestant], repeats: int) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, contestant in contestants.items():
            inferences = contestant.inferences
            for calls in (contestant.evaluations, inferences):
                if calls is not None:
                    calls.clear()
            contestant.run()
            verifier = None if inferences is None else statistics.median(inferences.durations)
            turns[name].append(Turn(contestant.evaluations.period, verifier))
    return turns


def table(turns: dict[str, list[Turn]], beside: str) -> str:
    """A row for each contestant; ratios are taken turn by turn."""
    rows = [f"| one CEM iteration | CPU-s | over {beside} | of it verifier |", "|---|---|---|---|"]
    for name, own in turns.items():
        ratios = [turn.iteration / other.iteration for turn, other in zip(own, turns[beside], strict=True)]
        shares = [turn.verifier / turn.iteration for turn in own if turn.verifier is not None]
        cells = (spread([turn.iteration for turn in own], "{:.2f}"), spread(ratios, "{:.2f}"), spread(shares, "{:.0%}"))
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def spread(values: list[float], form: str) -> str:
    if not values:
        return "-"
    return "{0} ({0} to {0})".replace("{0}", form).format(statistics.median(values), min(values), max(values))


def shares(contestant: Contestant) -> dict[str, float]:
    """What part of the processor's time goes to which operations."""
    with profile(activities=[ProfilerActivity.CPU]) as record:
        contestant.run()
    seconds = {event.key: event.self_cpu_time_total for event in record.key_averages()}
    total = sum(seconds.values())
    return {kind: sum(seconds.get(name, 0) for name in names) / total for kind, names in OPERATIONS.items()}


if __name__ == "__main__":
    main()
