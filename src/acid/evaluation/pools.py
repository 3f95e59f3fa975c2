"""Several agents that choose from one pool of candidates, imagined once.

In its first iteration CEM draws the same candidates whatever the cost. Where that iteration is the only one, agents
share the rollouts, which are most of the work, and their choices differ by nothing but the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from acid.errors import PlanningError
from acid.evaluation.agents import Decision, Situation, observed
from acid.evaluation.statistics import rank_correlation
from acid.planning import CEM, Cost, Planner, Pool, Proposal, Term, draw_pool
from acid.types import Problem


@dataclass(frozen=True)
class JudgedPool:
    """What is known of the N candidates of B problems."""

    pool: Pool
    terms: Mapping[str, Tensor]  # [B, N] unweighted
    errors: Sequence[np.ndarray | None]  # per problem: how far each candidate is from the truth, [N]
    situation: Situation

    def correlations(self, b: int) -> dict[str, float]:
        """Rank correlations inside the pool: of each term with the true error, and of the terms with each other."""
        error = self.errors[b]
        if error is None:
            return {}
        values = {name: value[b].numpy(force=True) for name, value in self.terms.items()}
        found = {f"rank_{name}": rank_correlation(value, error) for name, value in values.items()}
        names = list(values)
        pairs = [(first, second) for i, first in enumerate(names) for second in names[i + 1 :]]
        return found | {f"rank_{a}_{b}": rank_correlation(values[a], values[b]) for a, b in pairs}


Chooser = Callable[[JudgedPool], Tensor]  # to what the candidates are ranked by, [B, N]; the lowest are chosen


class SharedPool:
    """Draws and judges the pool of a situation; the agents that share it ask one after the other."""

    def __init__(
        self, planner: Planner, terms: Sequence[Term], *, initial: Callable[[Situation], Tensor | Proposal | None]
    ) -> None:
        if not isinstance(planner.search, CEM) or planner.search.iterations != 1 or planner.scaler is None:
            raise PlanningError(f"agents share the candidates of a CEM with one iteration, got {planner.search}")
        self.planner = planner
        self.elites = planner.search.elites
        self._cost = Cost(terms)
        self._initial = initial
        self._last: JudgedPool | None = None

    @torch.no_grad()
    def judge(self, situation: Situation) -> JudgedPool:
        if self._last is None or self._last.situation.seeds != situation.seeds:
            model = self.planner.model
            start = model.encode(observed(model, situation.observation))
            problem = Problem(start, model.encode(observed(model, situation.goals)))
            pool = draw_pool(self.planner, problem, seed=situation.seeds, initial=self._initial(situation))
            terms = pool.evaluate(self._cost).terms
            plans = self.env_actions(pool.actions)
            errors = [situation.judge(b, plans[b]) for b in range(problem.size)]
            self._last = JudgedPool(pool, terms, errors, situation)
        return self._last

    def env_actions(self, actions: Tensor) -> np.ndarray:
        """Normalised actions [..., H, A] in environment units [..., H·frameskip, a]."""
        assert self.planner.scaler is not None  # checked when it was made
        return self.planner.scaler.denormalise(actions).numpy(force=True)


class PoolAgent:
    """Executes the mean of the best candidates of a shared pool, or all of one candidate.

    uses: what of the pool's work is the agent's own, by name of the stopwatch, so that times can be compared.
    """

    def __init__(self, shared: SharedPool, choose: Chooser | int, *, uses: Sequence[str] = ()) -> None:
        self._shared = shared
        self._choose = choose
        self._uses = uses

    def act(self, situation: Situation) -> Decision:
        judged = self._shared.judge(situation)
        pool = judged.pool
        if isinstance(self._choose, int):
            chosen = pool.actions[:, self._choose]
        else:
            chosen = pool.choose(self._choose(judged), self._shared.elites)
        return Decision(
            self._shared.env_actions(chosen),
            wall_seconds=sum(pool.seconds[name] for name in self._uses),
            pool=[judged.correlations(b) for b in range(len(chosen))],
        )
