"""How to plan with a kind of world model: its goal cost, what its verifier looks at, which candidates are searched.

The default is to plan in latent space; kinds that need something else are named here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from acid.data.poses import SCALER, STEP_SECONDS, normalise
from acid.errors import AcidError, CheckpointError, look_up
from acid.evaluation.agents import Situation
from acid.evaluation.searches import FREE, SearchSpec
from acid.planning import (
    ActionConsistency,
    Arc,
    Between,
    DecodedDistance,
    GoalDistance,
    HeadedLine,
    Parametrisation,
    Planner,
    PolicyProposal,
    Proposal,
    Several,
    StraightLine,
    Term,
    VerifierView,
    Weight,
)
from acid.planning.bounds import Limit
from acid.planning.costs import Cost
from acid.planning.proposals import GoalPolicy
from acid.planning.view import check_fitted
from acid.types import ActionScaler


class Kit:
    """Plans in latent space, over every number of an action sequence."""

    candidates: tuple[str, ...] = (FREE,)  # families of candidates; the first is the default
    repeats = 1  # rollouts of each candidate
    batch = 8  # episodes that are planned for at once
    starts_from_last_action = False  # whether `initial` needs to know it
    proposed: Mapping[str, Any] = {  # sizes of a search that suffice from a proposal, in closed loop
        "samples": 30, "iterations": 5, "elites": 5, "execute": 1, "shrinks": True, "std_init": 0.3,
    }  # fmt: skip

    def __init__(self, model: Any, verifier: Any, metadata: Mapping[str, Any]) -> None:
        """metadata: of the verifier's checkpoint."""
        self.model = model
        self.verifier = verifier
        check_fitted("verifier", verifier, model)
        self.check(metadata)

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Model and verifier must belong together."""
        if self.verifier.scaler != self.model.scaler:
            raise CheckpointError("the verifier was fitted with other action statistics than the model; fit it again")

    def with_verifier(self, verifier: Any) -> Self:
        """The same kit with another verifier."""
        other = copy.copy(self)
        other.__dict__.pop("view", None)  # some keep it, and it is the old verifier's
        other.verifier = verifier
        return other

    def goal(self) -> Term:
        return GoalDistance()

    def consistency(self, weight: Weight, part: Any = "all") -> ActionConsistency:
        """ACID's term, or a part of it, which is then named after the part."""
        return ActionConsistency(self.view, weight, "consistency" if part == "all" else part, part=part)

    @property
    def view(self) -> VerifierView:
        """What the verifier looks at, and in which units it answers."""
        return VerifierView(self.verifier)

    def path_consistency(self, weight: Weight) -> ActionConsistency:
        """The same between the places where actions lead."""
        raise AcidError(f"the actions of a {type(self.model).__name__} do not lead along a path in the plane")

    @property
    def plans_paths(self) -> bool:
        """Whether actions are steps (x, y, yaw) in the plane."""
        return False

    def parametrisation(self, candidates: str) -> Parametrisation | None:
        return None

    def initial(self, candidates: str, situation: Situation) -> Tensor | None:
        """What a search starts from."""
        return None

    def proposal(self, policy: GoalPolicy, spec: SearchSpec) -> Proposal:
        """How a search starts from a policy's actions."""
        return PolicyProposal(policy)

    def around(self, proposal: Proposal, usual: Tensor | None) -> Proposal:
        """The same where it is also known what the search would start from without a policy."""
        return proposal

    def planner(
        self, cost: Cost, spec: SearchSpec, *, bounds: tuple[Limit, Limit] | None = None, **options: Any
    ) -> Planner:
        if spec.candidates not in self.candidates:
            look_up(dict.fromkeys(self.candidates), spec.candidates, "family of candidates")
        return Planner(
            self.model,
            cost,
            spec.build(),
            horizon=spec.horizon,
            bounds=bounds,
            parametrisation=self.parametrisation(spec.candidates),
            repeats=spec.repeats,
            **options,
        )


class TokenKit(Kit):
    """For frames of many tokens, of which two problems at a time keep a core busy."""

    batch = 2
    proposed: Mapping[str, Any] = {"samples": 60, "iterations": 5, "elites": 12}

    def proposal(self, policy: GoalPolicy, spec: SearchSpec) -> Proposal:
        """Half of the first candidates are samples of the policy, for goals one to all its actions away.

        Nobody knows how many pushes a goal is away, and there are many ways to push, whose mean may be none.
        """
        share = spec.samples // (2 * policy.horizon)
        if share == 0:
            return PolicyProposal(policy)
        return Several(*(PolicyProposal(policy, samples=share, left=k) for k in range(1, policy.horizon + 1)))


class NavigationKit(Kit):
    """NWM: frames are compared as pictures, and candidates are motions around the robot's current speed."""

    candidates = ("arc", "line", "nwm")
    starts_from_last_action = True
    repeats = 3
    batch = 1
    SPREAD = (0.12, 0.25)  # m/s and rad/s, of arcs around the current speed
    proposed: Mapping[str, Any] = {"samples": 24, "elites": 8}

    def check(self, metadata: Mapping[str, Any]) -> None:
        if metadata.get("tokenizer") != self.model.tokenizer.fingerprint:
            raise CheckpointError("the verifier was fitted to frames of another tokenizer; fit it again")

    @cached_property
    def lpips(self) -> Callable[[Tensor, Tensor], Tensor]:
        from acid.device import device_of
        from acid.nn.lpips import load_lpips

        return load_lpips().to(device_of(self.model))

    @property
    def plans_paths(self) -> bool:
        return True

    def goal(self) -> Term:
        return DecodedDistance(self.model.decode, self.lpips)

    @cached_property
    def view(self) -> VerifierView:
        """The verifier looks at what tokens draw, or at other latents as they are, and infers displacements in units of
        their own deviations."""
        return VerifierView(self.verifier, features=self.model.features, units=self.verifier_units)

    def verifier_units(self, actions: Tensor) -> Tensor:
        """The model's normalised actions [..., H, A] in the verifier's units."""
        return self.verifier.scaler.normalise(self.model.scaler.denormalise(actions))

    def path_consistency(self, weight: Weight) -> ActionConsistency:
        return ActionConsistency(self.view, weight, "path", path=places(self.verifier.scaler))

    def parametrisation(self, candidates: str) -> Parametrisation:
        speed, rate = (spread * STEP_SECONDS / SCALER.std[i] for spread, i in zip(self.SPREAD, (0, 2), strict=True))
        arc = Arc(SCALER, std=(speed, rate))
        return {"arc": arc, "line": StraightLine(), "nwm": HeadedLine(scaler=SCALER)}[candidates]

    def proposal(self, policy: Any, spec: SearchSpec) -> Proposal:
        """The arc along the path that a policy answers with, and how sure it is of it."""
        chosen: Any = self.parametrisation(spec.candidates)
        return PolicyProposal(
            policy,
            samples=64,
            steps=10,
            features=self.model.features,
            units=lambda answer: self.model.scaler.normalise(policy.scaler.denormalise(answer[:, None])),
            variables=chosen.along,
        )

    def around(self, proposal: Any, usual: Tensor | None) -> Proposal:
        """Two frames tell the turns; how fast the robot goes now tells more about its speed."""
        return replace(proposal, samples=0) if usual is None else Between(proposal, usual)

    def initial(self, candidates: str, situation: Situation) -> Tensor | None:
        """Straight on, as fast as in the last step."""
        if situation.last_actions is None:
            return None
        chosen: Any = self.parametrisation(candidates)
        ahead = normalise(np.pad(situation.last_actions[:, :1], ((0, 0), (0, 2))))[:, 0]
        middle = torch.zeros(len(ahead), 1, chosen.size)
        middle[:, 0, 0] = torch.from_numpy((ahead - chosen.mean[0]) / chosen.std[0])
        return middle


class DiffusionKit(NavigationKit):
    """The same without a tokenizer of the cell's own: a cell tells of which world model its verifier is."""

    def check(self, metadata: Mapping[str, Any]) -> None:
        pass


def places(scaler: ActionScaler) -> Callable[[Tensor], Tensor]:
    """From normalised steps (x, y, yaw) [..., H, 3] to the places [..., H, 2] in metres, seen from the start."""

    def lead(actions: Tensor) -> Tensor:
        forward, sideways, turn = scaler.denormalise(actions).unbind(-1)
        yaw = turn.cumsum(-1) - turn  # at the beginning of each step
        cosine, sine = yaw.cos(), yaw.sin()
        return torch.stack([cosine * forward - sine * sideways, sine * forward + cosine * sideways], -1).cumsum(-2)

    return lead


KITS: Mapping[str, type[Kit]] = {
    **{"dinowm": TokenKit, "dinowm-symmetric": TokenKit},
    **{"nwm": NavigationKit, "nwm-diffusion": DiffusionKit},
}


def kit_of(model: str) -> type[Kit]:
    return KITS.get(model, Kit)
