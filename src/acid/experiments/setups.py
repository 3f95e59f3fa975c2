"""How each task is tested and planned: what its published evaluation fixes, and our choice where it is silent."""

from __future__ import annotations

from dataclasses import dataclass

from acid.evaluation import Protocol
from acid.evaluation.protocol import Split
from acid.planning import CEM, Search


@dataclass(frozen=True)
class Setup:
    """As published for Le-WM and PLDM by default."""

    goal_offset: int | None = 25  # environment steps; None: the task draws goals of its own
    budget: int = 50  # environment steps
    horizon: int = 5  # model steps that a plan looks ahead, all executed before the next plan
    search: Search = CEM(samples=300, iterations=30, elites=30)

    def protocol(self, *, episodes: int = 200, split: Split = "test", seed: int = 0) -> Protocol:
        return Protocol(self.goal_offset, self.budget, seed, episodes, split)


# The paper gives the sizes of the search; how far a plan looks and how many pushes there are it does not say. A push
# can do more than a step of the other tasks: each is planned by itself, after a look at what the last one did.
SETUPS = {
    "rope": Setup(None, budget=8, horizon=1, search=CEM(samples=200, iterations=10, elites=30)),
    "granular": Setup(None, budget=8, horizon=1, search=CEM(samples=100, iterations=10, elites=30)),
}


def setup(task: str) -> Setup:
    return SETUPS.get(task, Setup())
