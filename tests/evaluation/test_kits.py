"""How kinds of world models are planned with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_fakes import Adder, Blind, situation
from hypothesis import given
from hypothesis import strategies as st

from acid.data.poses import SCALER, displacements, integrate
from acid.errors import AcidError, CheckpointError
from acid.evaluation import Bench, Cell, Protocol, SearchSpec
from acid.evaluation.kits import DiffusionKit, Kit, NavigationKit, TokenKit, kit_of, places
from acid.planning import (
    Adaptive,
    Arc,
    Between,
    Constant,
    Cost,
    DecodedDistance,
    GoalDistance,
    PolicyProposal,
    StraightLine,
    goal_cost,
)
from acid.planning.noise import Streams
from acid.types import ActionScaler, Problem, Trajectory


@pytest.fixture(scope="module")
def kit(navigation_folder: Path) -> NavigationKit:
    bench = Bench(Cell("navigation", "nwm", navigation_folder), SearchSpec("cem", 6, 1, 2, 8), Protocol())
    assert isinstance(bench.kit, NavigationKit)
    return bench.kit


def test_models_that_are_not_named_are_planned_with_in_their_latent_space():
    assert [kit_of(name) for name in ("lewm", "mine", "dinowm", "nwm")] == [Kit, Kit, TokenKit, NavigationKit]
    kit = Kit(Adder(), Blind(), {})
    assert isinstance(kit.goal(), GoalDistance)
    assert kit.consistency(Adaptive(0.5)).weight == Adaptive(0.5)
    assert not kit.plans_paths
    assert kit.initial("free", situation([1], [2])) is None
    with pytest.raises(AcidError, match="the actions of a Adder do not lead along a path"):
        kit.path_consistency(Adaptive(1.0))


def test_a_search_for_pushes_starts_from_samples_for_every_distance_of_the_goal():
    class Guess:
        horizon = 3

        def act(self, latent, goal, left):
            raise NotImplementedError

    kit = object.__new__(TokenKit)
    policy = Guess()
    several = kit.proposal(policy, SearchSpec("cem", 60, 1, 6, horizon=1))
    assert [(one.left, one.samples) for one in several.proposals] == [(1, 10), (2, 10), (3, 10)]
    assert kit.proposal(policy, SearchSpec("shooting", 1, horizon=1)) == PolicyProposal(policy)


def test_a_verifier_of_other_statistics_is_refused():
    class Other(Blind):
        scaler = ActionScaler(mean=(0.0,), std=(2.0,), frameskip=5)

    with pytest.raises(CheckpointError, match="fitted with other action statistics"):
        Kit(Adder(), Other(), {})


def test_a_planner_is_what_a_search_is_told_to_be(kit: NavigationKit):
    planner = kit.planner(goal_cost(), SearchSpec("cem", 6, 2, 3, 8, "line", 3))
    assert (planner.horizon, planner.repeats, planner.search.samples) == (8, 3, 6)  # type: ignore[attr-defined]
    assert isinstance(planner.parametrisation, StraightLine)
    assert isinstance(kit.planner(goal_cost(), SearchSpec("cem", 6, 2, 3, 8, "arc", 3)).parametrisation, Arc)
    with pytest.raises(AcidError, match="unknown family of candidates 'arcs'; did you mean 'arc'"):
        kit.planner(goal_cost(), SearchSpec("cem", 6, 2, 3, 8, "arcs"))
    with pytest.raises(AcidError, match="unknown family of candidates 'arc'; known: 'free'"):
        Kit(Adder(), Blind(), {}).planner(goal_cost(), SearchSpec("cem", 6, 2, 3, 8, "arc"))


def test_navigation_compares_pictures(kit: NavigationKit):
    term = kit.goal()
    assert isinstance(term, DecodedDistance)
    frames = torch.zeros(1, 2, 32, 32, 3, dtype=torch.uint8)
    frames[:, 1, :16] = 200
    seen = kit.model.encode(frames)
    still = Trajectory(seen[:, None, :1].expand(-1, 1, 2, -1, -1), torch.zeros(1, 1, 1, 3))
    assert float(term(still, seen[:, 0])) == pytest.approx(0, abs=1e-6)
    assert float(term(still, seen[:, 1])) > 1e-6


def test_a_verifier_of_another_tokenizer_is_refused(kit: NavigationKit):
    with pytest.raises(CheckpointError, match="fitted to frames of another tokenizer; fit it again"):
        NavigationKit(kit.model, kit.verifier, {"tokenizer": "0" * 12})


@pytest.mark.parametrize("family", ["arc", "line", "nwm"])
def test_diffusion_is_planned_with_alike(diffusion_folder: Path, family: str):
    """By pictures that the VAE draws, a verifier of latents, and as many rollouts of each candidate as asked for."""
    spec = SearchSpec("cem", 4, 1, 2, 2, family, 2)
    kit = Bench(Cell("navigation", "nwm-diffusion", diffusion_folder), spec, Protocol()).kit
    assert isinstance(kit, DiffusionKit)
    frames = torch.randint(256, (1, 5, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    cost = Cost([kit.goal(), kit.consistency(Constant(0.5))])
    planner = kit.planner(cost, spec)
    first, again, other = (planner.plan(frames[:, :4], frames[:, 4], seed=seed) for seed in (3, 3, 4))
    assert first.env_actions.shape == (1, 2, 3)
    np.testing.assert_array_equal(first.env_actions, again.env_actions)
    assert not np.array_equal(first.env_actions, other.env_actions)


def test_the_verifiers_units_are_deviations_of_displacements(kit: NavigationKit):
    steps = torch.tensor([[0.3, -0.1, 0.2]])
    own = kit.verifier.scaler
    expected = (steps - torch.tensor(own.mean)) / torch.tensor(own.std)
    torch.testing.assert_close(kit.verifier_units(SCALER.normalise(steps)), expected)


@pytest.mark.parametrize("family", ["arc", "line"])
def test_a_search_begins_straight_on_at_the_current_speed(kit: NavigationKit, family: str):
    """What lies in the middle of the candidates goes as far in each step as the last one went."""
    asked = situation([1, 2], [3, 4], last_actions=np.array([[0.3, 0.05, 0.1], [0.1, 0.0, 0.0]]))
    middle = kit.initial(family, asked)
    assert middle is not None
    parametrisation = kit.parametrisation(family)
    steps = SCALER.denormalise(parametrisation(middle[:, None], 8)).numpy()[:, 0]
    np.testing.assert_allclose(steps[..., 1:], 0, atol=1e-6)
    np.testing.assert_allclose(steps[..., 0], [[0.3] * 8, [0.1] * 8], atol=1e-6)
    assert kit.initial(family, situation([1], [3])) is None  # nobody knows how fast it goes


def test_a_proposal_is_the_arc_along_the_path_of_a_policy(kit: NavigationKit):
    class Circle:
        horizon = 8
        scaler = ActionScaler((0.2, 0.0, 0.0), (0.1, 0.01, 0.05), frameskip=8)

        def act(self, latent, goal, left):
            assert latent.shape[1:] == goal.shape[1:] == kit.model.features(problem.goal).shape[1:]
            return torch.tensor([1.0, 0.0, -2.0]).repeat(len(latent), 8)

    frames = torch.zeros(3, 4, 32, 32, 3, dtype=torch.uint8)
    seen = kit.model.encode(frames)
    problem = Problem(seen, seen[:, -1])
    proposal = kit.proposal(Circle(), SearchSpec("cem", 6, 1, 3, 8, "arc"))
    start = kit.around(proposal, None)(kit.model, problem, 8, Streams.of(0, 3))  # nobody knows how fast it goes
    assert start.std is None
    assert start.sequences is None
    known = torch.full((3, 1, 2), 5.0)
    assert kit.around(proposal, known) == Between(proposal, known)
    steps = SCALER.denormalise(kit.parametrisation("arc")(start.mean, 8)).numpy()
    np.testing.assert_allclose(steps[..., [0, 2]], np.broadcast_to([0.3, -0.1], (3, 8, 2)), atol=1e-6)


STEP = st.tuples(*[st.floats(-0.5, 0.5)] * 3)


@given(st.lists(STEP, min_size=1, max_size=6))
def test_places_are_where_the_poses_of_the_steps_are(steps):
    wanted = integrate(np.array(steps), np.zeros(3))
    found = places(SCALER)(SCALER.normalise(torch.tensor(steps, dtype=torch.float64)))
    np.testing.assert_allclose(found.numpy(), wanted[1:, :2], atol=1e-9)
    np.testing.assert_allclose(displacements(wanted), steps, atol=1e-9)
