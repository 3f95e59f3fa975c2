"""Everything that is compared, by name. To compare one more cost or agent, add one entry here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from acid.errors import AcidError, look_up, named
from acid.evaluation.agents import Agent, NoOpAgent, PlanningAgent, PolicyAgent, RandomAgent
from acid.evaluation.disturbances import MaskedAgent, PushedAgent
from acid.evaluation.kits import Kit, kit_of
from acid.evaluation.pools import Chooser, JudgedPool, PoolAgent
from acid.evaluation.protocol import plan_seed
from acid.evaluation.searches import SearchSpec
from acid.evaluation.verifier_variant import VerifierVariant
from acid.planning import ActionNorm, Adaptive, Constant, Custom, Term
from acid.report.style import Look
from acid.types import Trajectory

if TYPE_CHECKING:
    from acid.evaluation.cells import Bench

BASELINE = "original"  # what the others are compared with
Refusal = Callable[["Bench"], str | None]  # why a condition does not apply, or None if it does


def _always(bench: Bench) -> str | None:
    return None


def _as_given(spec: SearchSpec) -> SearchSpec:
    return spec


@dataclass(frozen=True)
class Condition:
    """One thing to compare: a cost for the search, a choice from a shared pool, or an agent that does not search."""

    name: str
    look: Look  # label, colour and marker in tables and figures
    terms: Callable[[Kit, float], Sequence[Term]] | None = None  # what joins the goal cost, weighted by λ
    searches: bool = True
    bounded: bool = False  # candidates are clipped to the data's range of actions
    proposes: bool = False  # the search starts where the cell's policy would go
    search_of: Callable[[SearchSpec], SearchSpec] = _as_given  # the search that it makes of the one that is asked for
    choose: Chooser | int | None = None  # from a pool: what ranks the candidates, or the number of one of them
    agent: Callable[[Bench], Agent] | None = None
    parts: tuple[str, ...] = ("model", "verifier")  # of a cell, that it needs besides a policy to start from
    lambda_of: str | None = None  # another condition whose λ is used
    borrows: bool = False  # the verifier is that of another world model of the task, see `Cell.lender`
    disturb: Callable[[Agent, Bench], Agent] | None = None  # what happens to the agent
    refuses: Refusal = _always

    @property
    def needs(self) -> tuple[str, ...]:
        """The parts of a cell without which it cannot be run."""
        return (*self.parts, "policy") if self.proposes else self.parts

    @property
    def weighted(self) -> bool:
        """Whether it has a λ."""
        return self.terms is not None

    def pools(self, spec: SearchSpec) -> bool:
        """Whether under this search it draws the candidates that others draw too, once, so that they may share them."""
        own = self.bounded or self.borrows or self.disturb is not None or (self.proposes and spec.execute is not None)
        return self.searches and not own and (spec.method, spec.iterations) == ("cem", 1)

    def terms_of(self, kit: Kit, lam: float) -> list[Term]:
        """What joins the goal cost at this λ, which must decide how much that counts."""
        if self.terms is None:
            return []
        made, other = self.terms(kit, lam), self.terms(kit, lam + 1)
        if not isinstance(made, Sequence):
            raise AcidError(f"the condition {self.name!r} must give a list of terms, got a {type(made).__name__}")
        if [term.weight for term in made] == [term.weight for term in other]:
            raise AcidError(
                f"the weights of the condition {self.name!r} are the same for every λ; make them of λ, e.g. "
                "Adaptive(lam)"
            )
        return list(made)

    @property
    def chosen_as(self) -> str:
        """The name under which its λ is chosen."""
        return self.lambda_of or self.name

    def check_applies(self, bench: Bench) -> None:
        """Raise an AcidError unless this condition can be run there."""
        if reason := self.refuses(bench):
            where = f"{bench.cell.task} with {bench.cell.model}"
            raise AcidError(f"the condition {self.name!r} does not apply to {where}: {reason}")

    def check(self, bench: Bench, lam: float | None) -> None:
        """Raise an AcidError unless this condition can be run there with this λ and search."""
        self.check_applies(bench)
        if self.weighted != (lam is not None):
            raise AcidError(f"the condition {self.name!r} {'needs a λ' if self.weighted else 'has no λ'}, got {lam}")
        if self.choose is not None and not bench.pooled:
            raise AcidError(f"the condition {self.name!r} chooses from a pool: it needs a CEM with 1 iteration")
        if bench.spec.execute is not None and bench.pooled and self.pools(bench.spec):
            raise AcidError("a plan that is chosen from a shared pool is executed whole: leave out `execute`")

    def build(self, bench: Bench, lam: float | None) -> Agent:
        """The agent."""
        self.check(bench, lam)
        if self.agent is not None:
            return self.agent(bench)
        if bench.pooled and self.pools(bench.spec):
            starts = ("proposal",) if self.proposes else ()
            costs = (term.name for term in bench.cost(self, lam).active)
            uses = () if self.choose is not None else (*starts, "rollout", *costs)
            choose = _cheapest(bench, self, lam) if self.choose is None else self.choose
            return PoolAgent(bench.shared_pool(self), choose, uses=uses)
        planner = bench.planner(self, lam)
        left = bench.protocol.steps_left if bench.spec.shrinks else None
        agent = PlanningAgent(
            planner, bench.spec.execute, initial=partial(bench.initial, self), readout=bench.readout, steps_left=left
        )
        return agent if self.disturb is None else self.disturb(agent, bench)


def _cheapest(bench: Bench, condition: Condition, lam: float | None) -> Chooser:
    cost = bench.cost(condition, lam)
    return lambda judged: cost.weigh(judged.terms).total


def _at_random(judged: JudgedPool) -> Tensor:
    """Random numbers, of another stream than the candidates'."""
    situation, candidates = judged.situation, judged.pool.actions.shape[1]
    seeds = [plan_seed(situation.seed, instance, situation.plan + 1) for instance in situation.instances]
    return torch.cat([torch.rand(1, candidates, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def _by_true_error(judged: JudgedPool) -> Tensor:
    """The true errors, which no agent can know."""
    found = [error for error in judged.errors if error is not None]
    if len(found) < len(judged.errors):
        raise AcidError("the best candidate is known only where plans are compared with a true path")
    return torch.stack([torch.from_numpy(error).float() for error in found])


def _policy(bench: Bench) -> Agent:
    model, policy = bench.model, bench.policy
    steps_left = bench.protocol.steps_left
    return PolicyAgent(model, policy, model.scaler, steps_left, answers=policy.scaler, features=model.features)


def _refuse_policy(bench: Bench) -> str | None:
    return None if bench.cell.has("policy") else f"{bench.cell.root} has no policy"


def _refuse_proposal(bench: Bench) -> str | None:
    usual = kit_of(bench.cell.model).candidates[0]
    if bench.spec.candidates != usual:
        return f"a policy proposes candidates of the family {usual!r}, not {bench.spec.candidates!r}"
    return None if bench.cell.has("policy") else f"{bench.cell.root} has no policy to start from"


def _refuse_parts(bench: Bench) -> str | None:
    directions = bench.kit.verifier.directions
    if directions is None:
        return "its verifier was fitted before directions were measured; fit it again with `acid train verifier`"
    return None if 0 < directions.told < len(directions.shares) else f"{directions}, so there is nothing to divide"


def _refuse_without_steps(bench: Bench) -> str | None:
    return None if bench.kit.plans_paths else "its actions are not steps (x, y, yaw) in the plane"


def _refuse_clipping(bench: Bench) -> str | None:
    return "what is planned there is not in the units of its commands" if bench.setup.judges_paths else None


def _refuse_without_path(bench: Bench) -> str | None:
    return None if bench.setup.judges_paths else "plans there are not compared with a true path"


def _stillness(trajectory: Trajectory, goal: Tensor) -> Tensor:
    """How little is imagined to change in a step: minus the mean squared change, [B, N]."""
    return -trajectory.latents.diff(dim=2).square().mean((2, 3, 4))


def _turning(trajectory: Trajectory, goal: Tensor) -> Tensor:
    """How far candidates depart from straight ahead: mean over the steps of sideways and turn squared, [B, N]."""
    return trajectory.actions[..., 1:].square().sum(-1).mean(-1)


def _turn_penalty(kit: Kit, lam: float) -> Sequence[Term]:
    return [Custom(_turning, "turn", Adaptive(lam))]


def _consistency(*parts: str) -> Callable[[Kit, float], Sequence[Term]]:
    """ACID's terms, each with an adaptive weight of its own."""
    return lambda kit, lam: [kit.consistency(Adaptive(lam), part) for part in parts]


_ALL_DIRECTIONS = _consistency("all")


def _variant(name: str, **how: Any) -> Callable[[Kit, float], Sequence[Term]]:
    """ACID's term with a variant of the verifier, under a name of its own."""
    return lambda kit, lam: [
        replace(
            kit.with_verifier(VerifierVariant(kit.verifier, **how)).consistency(Adaptive(lam)),
            name=f"consistency_{name}",
        )
    ]


def _masked(agent: Agent, bench: Bench) -> Agent:
    return MaskedAgent(agent)


def _pushed(agent: Agent, bench: Bench) -> Agent:
    return PushedAgent(agent, *bench.task.action_bounds, steps=bench.task.frameskip)


def _refuse_borrowing(bench: Bench) -> str | None:
    return None if bench.cell.lender is not None else "the task has no other verifier for latents of this size"


# Colours after Okabe and Ito, safe for colour-blind readers. ACID is the only strong blue, Original the only dark grey.
_ALL = (
    Condition("original", Look("Original", "#6e6e6e", "s")),
    Condition("acid", Look("ACID", "#0072b2", "o"), _ALL_DIRECTIONS),
    Condition(
        "acid-path",
        Look("ACID of the path", "#56b4e9", "o"),
        lambda kit, lam: [kit.path_consistency(Adaptive(lam))],
        refuses=_refuse_without_steps,
    ),
    Condition("told", Look("ACID, told part", "#004d80", "P"), _consistency("told"), refuses=_refuse_parts),
    Condition("untold", Look("ACID, untold part", "#999933", "P"), _consistency("untold"), refuses=_refuse_parts),
    Condition(
        "told-untold",
        Look("ACID, told + untold", "#661100", "P"),
        _consistency("told", "untold"),
        refuses=_refuse_parts,
    ),
    Condition(
        "constant",  # its λ is the weight itself
        Look("Constant weight", "#cc6677", "o"),
        lambda kit, lam: [kit.consistency(Constant(lam))],
    ),
    *(
        Condition(
            f"acid-{steps}-steps",
            Look(f"ACID, {steps} Euler steps", colour, "X"),
            _variant(f"{steps}_steps", steps=steps),
            lambda_of="acid",
        )
        for steps, colour in ((2, "#1f78b4"), (5, "#33a02c"), (10, "#6a3d9a"))
    ),
    Condition(
        "acid-noise", Look("ACID from noise", "#b15928", "X"), _variant("noise", random_start=True), lambda_of="acid"
    ),
    Condition(
        "acid-noise-10-steps",
        Look("ACID from noise, 10 Euler steps", "#fb9a99", "X"),
        _variant("noise_10_steps", random_start=True, steps=10),
        lambda_of="acid",
    ),
    Condition(
        "acid-swapped",
        Look("ACID, another model's verifier", "#a6761d", "o"),
        _ALL_DIRECTIONS,
        borrows=True,
        lambda_of="acid",
        refuses=_refuse_borrowing,
    ),
    *(
        made
        for name, disturb in (("masked", _masked), ("pushed", _pushed))
        for made in (
            Condition(
                f"original-{name}",
                Look(f"Original, {name}", "#6e6e6e", "<" if name == "masked" else ">"),
                disturb=disturb,
                refuses=_refuse_clipping,
            ),
            Condition(
                f"acid-{name}",
                Look(f"ACID, {name}", "#0072b2", "<" if name == "masked" else ">"),
                _ALL_DIRECTIONS,
                disturb=disturb,
                lambda_of="acid",
                refuses=_refuse_clipping,
            ),
        )
    ),
    Condition("control", Look("‖a‖² control", "#e69f00", "^"), lambda kit, lam: [ActionNorm(Adaptive(lam))]),
    Condition(
        "change",
        Look("Reward for change", "#d55e00", "o"),
        lambda kit, lam: [Custom(_stillness, "change", Adaptive(lam))],
    ),
    Condition(
        "turn",
        Look("Turn penalty", "#882255", "o"),
        _turn_penalty,
        refuses=_refuse_without_steps,
    ),
    Condition("clipped", Look("Original, clipped", "#44aa99", "s"), bounded=True, refuses=_refuse_clipping),
    Condition(
        "acid-clipped",
        Look("ACID, clipped", "#332288", "o"),
        _ALL_DIRECTIONS,
        bounded=True,
        lambda_of="acid",
        refuses=_refuse_clipping,
    ),
    Condition(
        "proposal",
        Look("Proposal", "#117733", "s"),
        proposes=True,
        refuses=_refuse_proposal,
    ),
    Condition(
        "proposal-acid",
        Look("Proposal + ACID", "#004488", "o"),
        _ALL_DIRECTIONS,
        proposes=True,
        lambda_of="acid",
        refuses=_refuse_proposal,
    ),
    Condition(
        "proposal-turn",
        Look("Proposal + turn penalty", "#aa4499", "o"),
        _turn_penalty,
        proposes=True,
        lambda_of="turn",
        refuses=lambda bench: _refuse_without_steps(bench) or _refuse_proposal(bench),
    ),
    Condition(
        "policy-open",
        Look("Policy, open loop", "#44bb99", "D"),
        proposes=True,
        search_of=lambda spec: replace(
            spec, method="shooting", samples=1, iterations=1, elites=None, repeats=1, options={}
        ),
        refuses=_refuse_proposal,
    ),
    Condition("prior", Look("Prior mean", "#b5b5b5", "v"), choose=0),  # candidate 0 is the mean of what is searched
    Condition("chance", Look("Random cost", "#cc79a7", "x"), choose=_at_random),
    Condition("best", Look("Best of pool", "#009e73", "D"), choose=_by_true_error, refuses=_refuse_without_path),
    Condition(
        "noop",
        Look("No-op", "#b5b5b5", "v"),
        searches=False,
        agent=lambda bench: NoOpAgent(bench.task.idle_action),
        parts=(),
    ),
    Condition(
        "random",
        Look("Random", "#cc79a7", "x"),
        searches=False,
        agent=lambda bench: RandomAgent(*bench.task.action_bounds),
        parts=(),
        refuses=lambda bench: "plans there are paths; use 'chance'" if bench.setup.judges_paths else None,
    ),
    Condition(
        "policy",
        Look("Policy", "#009e73", "D"),
        searches=False,
        agent=_policy,
        parts=("model", "policy"),
        refuses=_refuse_policy,
    ),
)
CONDITIONS: Mapping[str, Condition] = named(_ALL, "condition")


def condition(name: str) -> Condition:
    return look_up(CONDITIONS, name, "condition")


def terms(kit: Kit, names: Collection[str]) -> list[Term]:
    """The goal cost and every term of the named conditions once, all active: what a shared pool is judged by."""
    found = {term.name: term for entry in _ALL if entry.name in names for term in entry.terms_of(kit, 1.0)}
    return [kit.goal(), *found.values()]


def measured(kit: Kit) -> Term:
    """Consistency that is reported but plays no part in a search."""
    return kit.consistency(Constant(0.0))
