"""Every condition builds where it applies, and says why where it does not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from acid.errors import AcidError, UnknownNameError
from acid.evaluation import (
    CONDITIONS,
    Bench,
    Cell,
    NoOpAgent,
    PlanningAgent,
    PolicyAgent,
    Protocol,
    RandomAgent,
    SearchSpec,
    condition,
    play,
)
from acid.evaluation.conditions import terms
from acid.evaluation.disturbances import MaskedAgent, PushedAgent
from acid.evaluation.jobs import CellContender
from acid.evaluation.play import render_states
from acid.evaluation.pools import PoolAgent
from acid.evaluation.verifier_variant import VerifierVariant
from acid.planning import ActionNorm, Adaptive, Constant, PolicyProposal
from acid.planning.noise import Streams
from acid.types import ActionScaler, Problem
from acid.verifier import Directions, FitConfig, Policy, TransformerSize, Verifier

REACHER = Cell("reacher", "lewm")
SPEC = SearchSpec("cem", 6, 2, 2, horizon=2)
ONCE = replace(SPEC, iterations=1)


def bench(cell: Cell = REACHER, spec: SearchSpec = SPEC, pooled: bool = True, **changes) -> Bench:
    protocol = replace(Protocol.of(cell.task_class.setup, episodes=1), **changes)
    return Bench(cell, spec, protocol, pooled_with=("acid", "control", "change") if pooled else None)


@pytest.fixture(scope="module")
def latent() -> Bench:
    return bench()


@pytest.fixture(scope="module")
def latent_once() -> Bench:
    return bench(spec=ONCE)


@pytest.fixture(scope="module")
def paths(navigation_folder: Path) -> Bench:
    return bench(Cell("navigation", "nwm", navigation_folder), SearchSpec("cem", 6, 2, 2, 8, "arc", 2))


@pytest.fixture(scope="module")
def paths_once(paths: Bench) -> Bench:
    return Bench(paths.cell, replace(paths.spec, iterations=1), paths.protocol, pooled_with=("acid", "acid-path"))


@pytest.fixture(scope="module")
def divided() -> Bench:
    """A bench whose verifier tells one of the ten directions of an action."""
    made = bench()
    axes = tuple(tuple(float(i == j) for j in range(10)) for i in range(10))
    verifier = made.kit.verifier
    verifier.report = replace(verifier.report, directions=Directions((0.1, *[0.9] * 9), axes))
    return made


def weight(name: str) -> float | None:
    return 0.5 if condition(name).weighted else None


PLANNED = ("original", "acid", "control", "change", "clipped", "acid-clipped", "proposal", "proposal-acid")


@pytest.mark.parametrize("name", PLANNED)
def test_conditions_of_a_latent_model_plan(latent: Bench, name: str):
    agent = condition(name).build(latent, weight(name))
    assert isinstance(agent, PlanningAgent)
    planner = latent.planner(condition(name), weight(name))
    active = [term.name for term in planner.cost.active]
    extra = {"acid": ["consistency"], "control": ["action_norm"], "change": ["change"]}
    kind = name.removesuffix("-clipped").removeprefix("proposal-")
    assert active == ["goal", *extra.get(kind, [])]
    assert [t.weight for t in planner.cost.active[1:]] == [Adaptive(0.5)] * (len(active) - 1)
    reported = {term.name: term.weight for term in planner.cost.terms}
    assert reported["consistency"] in (Constant(0.0), Adaptive(0.5))  # all report it; only ACID's search sees it
    assert (planner.bounds is not None) == ("clipped" in name)


EULER = ("acid-2-steps", "acid-5-steps", "acid-10-steps", "acid-noise", "acid-noise-10-steps")
VARIANTS = ("constant", *EULER)  # of ACID, for studies
DISTURBED = ("original-masked", "acid-masked", "original-pushed", "acid-pushed")


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_acid_search_with_a_consistency_of_their_own(latent: Bench, name: str):
    assert isinstance(condition(name).build(latent, 0.5), PlanningAgent)
    _, term = latent.planner(condition(name), 0.5).cost.active
    assert term.name.startswith("consistency")
    assert term.weight == (Constant(0.5) if name == "constant" else Adaptive(0.5))


def test_a_verifier_may_be_asked_in_another_way(latent: Bench):
    verifier = latent.kit.verifier
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, 4, verifier.config.tokens, verifier.config.latent_size)
    before, after = (torch.randn(shape, generator=generator) for _ in range(2))
    usual = verifier.infer(before, after)
    assert torch.equal(VerifierVariant(verifier).infer(before, after), usual)
    many = VerifierVariant(verifier, steps=5).infer(before, after)
    assert torch.equal(many, verifier.infer(before, after, steps=5))
    noisy = VerifierVariant(verifier, random_start=True).infer(before, after)
    assert not torch.equal(noisy, usual)
    alone = VerifierVariant(verifier, random_start=True).infer(before[1:], after[1:])
    assert torch.allclose(noisy[1:], alone, atol=1e-6)  # whichever problems are planned for together


@pytest.mark.parametrize("name", DISTURBED)
def test_disturbed_agents_plan_like_others(latent: Bench, name: str):
    agent = condition(name).build(latent, weight(name))
    assert isinstance(agent, MaskedAgent if name.endswith("masked") else PushedAgent)
    assert not condition(name).pools(ONCE)


def test_a_verifier_is_borrowed_from_the_other_model_of_the_task():
    spec = SearchSpec.usual(Cell("cube", "lewm").task_class.setup)
    bench = Bench(Cell("cube", "lewm"), spec, Protocol(episodes=1))
    assert bench.cell.lender == Cell("cube", "pldm")
    swapped = bench.cost(condition("acid-swapped"), 0.5).terms[1]
    own = bench.cost(condition("acid"), 0.5).terms[1]
    assert swapped.weight == own.weight
    assert swapped.view.verifier is bench.borrowed_verifier
    assert own.view.verifier is bench.kit.verifier
    checkpoints = bench.provenance(condition("acid-swapped")).checkpoints
    assert checkpoints["borrowed_verifier"] != checkpoints["verifier"]
    assert REACHER.lender is None  # its two world models have latents of different sizes
    alone = Bench(REACHER, SearchSpec.usual(REACHER.task_class.setup), Protocol(episodes=1))
    with pytest.raises(AcidError, match="'acid-swapped' does not apply to reacher with lewm: the task has no other"):
        condition("acid-swapped").check_applies(alone)


def test_a_model_that_was_trained_again_borrows_the_verifier_from_before(tmp_path: Path):
    again = Cell("reacher", "lewm", tmp_path / "reacher" / "lewm")
    shutil.copytree(REACHER.root, again.root)
    assert again.lender is None  # the shipped verifier is its own
    fitted = Verifier.load(again.root / "verifier")
    Verifier(fitted.config, fitted.scaler).save(again.root / "verifier")
    assert again.lender == REACHER
    bigger = tmp_path / "reacher" / "other"
    shutil.copytree(Cell("reacher", "pldm").root, bigger)
    assert again.lender == REACHER  # what fits better than its neighbour


def test_agents_that_do_not_search(latent: Bench):
    kinds = {"noop": NoOpAgent, "random": RandomAgent, "policy": PolicyAgent}
    for name, kind in kinds.items():
        assert isinstance(condition(name).build(latent, None), kind)
        assert not condition(name).searches


@pytest.mark.parametrize("name", ["original", "acid", "control", "change", "prior", "chance"])
def test_with_one_iteration_agents_choose_from_one_pool(latent_once: Bench, name: str):
    assert isinstance(condition(name).build(latent_once, weight(name)), PoolAgent)


@pytest.mark.parametrize("name", ["clipped", "acid-clipped"])
def test_conditions_with_candidates_of_their_own_do_not_share_them(latent_once: Bench, name: str):
    assert not condition(name).pools(ONCE)
    assert isinstance(condition(name).build(latent_once, weight(name)), PlanningAgent)


def test_proposals_share_a_pool_around_the_policy():
    made = bench(spec=ONCE)
    for name in ("proposal", "proposal-acid", "original"):
        assert isinstance(condition(name).build(made, weight(name)), PoolAgent)
    around, usual = (made.shared_pool(condition(name)) for name in ("proposal", "original"))
    assert around is made.shared_pool(condition("proposal-acid"))
    assert isinstance(around.planner.proposal, PolicyProposal)
    assert usual.planner.proposal is None
    looking = bench(spec=replace(ONCE, execute=1))
    assert isinstance(condition("proposal").build(looking, None), PlanningAgent)  # with plans of its own


def test_a_choice_from_a_pool_is_executed_whole():
    with pytest.raises(AcidError, match="executed whole"):
        condition("original").build(bench(spec=replace(ONCE, execute=1)), None)


def test_clipped_plans_stay_within_the_range_of_actions(latent_once: Bench):
    task = latent_once.task
    (instance,) = REACHER.instances(latent_once.protocol).unsolved[:1]
    (episode,) = play(task, condition("clipped").build(latent_once, None), [instance], protocol=latent_once.protocol)
    low, high = task.action_bounds
    assert episode.plan is not None
    assert (episode.plan >= low - 1e-6).all()
    assert (episode.plan <= high + 1e-6).all()


def test_each_may_also_plan_by_itself():
    agent = condition("acid").build(bench(spec=ONCE, pooled=False), 0.5)
    assert isinstance(agent, PlanningAgent)


PARTS = {"told": ["told"], "untold": ["untold"], "told-untold": ["told", "untold"]}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_consistency_have_weights_of_their_own(divided: Bench, name: str):
    assert isinstance(condition(name).build(divided, 0.5), PlanningAgent)
    active = divided.planner(condition(name), 0.5).cost.active
    assert [term.name for term in active] == ["goal", *PARTS[name]]
    assert [term.weight for term in active[1:]] == [Adaptive(0.5)] * len(PARTS[name])


@pytest.mark.parametrize("name", PARTS)
def test_parts_need_a_verifier_that_tells_some_directions_and_not_others(name: str):
    for shares, reason in (
        ((0.1, 0.2), "2 of 2 directions"),
        ((0.7, 0.8), "0 of 2 directions"),
        (None, "fit it again"),
    ):
        made = bench()
        verifier = made.kit.verifier
        directions = None if shares is None else Directions(shares, ((1.0, 0.0), (0.0, 1.0)))
        verifier.report = replace(verifier.report, directions=directions)
        with pytest.raises(AcidError, match=f"the condition '{name}' does not apply .*{reason}"):
            condition(name).build(made, 0.5)


def test_the_policy_in_open_loop_executes_what_it_imagines(latent: Bench):
    chosen = condition("policy-open")
    spec = chosen.search_of(replace(latent.spec, execute=1))
    assert (spec.method, spec.samples, spec.horizon, spec.execute) == ("shooting", 1, latent.spec.horizon, 1)
    contender = CellContender(REACHER, "policy-open", None, latent.spec)
    assert contender.search == chosen.search_of(latent.spec)
    opened = contender.open(latent.protocol, [], {})
    (instance,) = REACHER.instances(latent.protocol).unsolved[:1]
    (episode,) = play(latent.task, opened.agent, [instance], protocol=latent.protocol)
    proposed = PolicyProposal(latent.policy)
    frames = render_states(latent.task, np.stack([instance.start_state, instance.goal_state]))
    now, goal = latent.model.encode(torch.from_numpy(frames)).detach().split(1)
    mean = proposed(latent.model, Problem(now, goal), latent.spec.horizon, Streams([0])).mean
    expected = latent.model.scaler.denormalise(mean)[0].numpy()
    assert episode.plan is not None
    np.testing.assert_allclose(episode.plan[: len(expected)], expected, atol=1e-4)


def test_feedback_makes_more_and_shorter_plans(latent: Bench):
    (instance,) = REACHER.instances(latent.protocol).unsolved[:1]
    lengths = {}
    for name, spec in {
        "whole": SearchSpec("cem", 4, 1, 2, horizon=5),
        "one": SearchSpec("cem", 4, 1, 2, horizon=5, execute=1),
        "shrinking": SearchSpec("cem", 4, 1, 2, horizon=5, execute=1, shrinks=True),
    }.items():
        agent = condition("original").build(bench(spec=spec, pooled=False), None)
        assert isinstance(agent, PlanningAgent)
        lengths[name] = [agent._controller(left).planner.horizon for left in range(50, 0, -5)]
        (episode,) = play(latent.task, agent, [instance], protocol=latent.protocol)
        assert episode.success or episode.decisions == (2 if name == "whole" else 10)
    assert lengths["one"] == [5] * 10
    assert lengths["shrinking"] == [5, 4, 3, 2, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("wrong", [{"execute": 0}, {"execute": 6}, {"shrinks": True}])
def test_feedback_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(AcidError, match="executed"):
        SearchSpec("cem", 4, 1, 2, horizon=5, **wrong)


PATH_CONDITIONS = ("original", "acid", "acid-path", "control", "change", "turn")


@pytest.mark.parametrize("name", PATH_CONDITIONS)
def test_conditions_of_paths_plan(paths: Bench, name: str):
    assert isinstance(condition(name).build(paths, weight(name)), PlanningAgent)


@pytest.mark.parametrize("name", ["original", "acid", "acid-path", "prior", "chance", "best"])
def test_conditions_of_paths_choose(paths_once: Bench, name: str):
    (instance,) = paths_once.cell.instances(paths_once.protocol)[:1]
    agent = condition(name).build(paths_once, weight(name))
    assert isinstance(agent, PoolAgent)
    from acid.tasks.navigation import Navigation

    task = Navigation(size=32)
    (episode,) = play(task, agent, [instance], protocol=paths_once.protocol)
    task.close()
    assert np.isfinite(list(episode.metrics.values())).all()
    assert {"rank_goal", "rank_consistency", "rank_path"} <= episode.pool.keys()
    assert (episode.steps, episode.decisions) == (8, 1)


REFUSED_BY_LATENT = {
    "acid-path": r"its actions are not steps \(x, y, yaw\) in the plane",
    "turn": r"its actions are not steps \(x, y, yaw\) in the plane",
    "best": "plans there are not compared with a true path",
}
REFUSED_BY_PATHS = {
    "random": "plans there are paths; use 'chance'",
    "policy": ".* has no policy",
    "proposal": ".* has no policy to start from",
    "clipped": "what is planned there is not in the units of its commands",
}


@pytest.mark.parametrize("name", REFUSED_BY_LATENT)
def test_what_needs_a_path_is_refused_without(latent_once: Bench, name: str):
    where = "the condition '{}' does not apply to reacher with lewm: "
    with pytest.raises(AcidError, match=where.format(name) + REFUSED_BY_LATENT[name]):
        condition(name).build(latent_once, weight(name))


@pytest.mark.parametrize("name", REFUSED_BY_PATHS)
def test_what_navigation_does_not_have_is_refused(paths: Bench, name: str):
    where = "the condition '{}' does not apply to navigation with nwm: "
    with pytest.raises(AcidError, match=where.format(name) + REFUSED_BY_PATHS[name]):
        condition(name).build(paths, weight(name))


@pytest.fixture(scope="module")
def guided(paths_once: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The same cell with a policy that learned from noise."""
    folder = shutil.copytree(paths_once.cell.root, tmp_path_factory.mktemp("guided") / "cell")
    latents = paths_once.model.features(paths_once.model.encode(torch.randint(256, (60, 32, 32, 3)).to(torch.uint8)))
    size, training = TransformerSize(12, 1, 2), FitConfig(steps=3, batch_size=16)
    actions = (torch.randn(60, 24), torch.arange(60) // 20)
    scaler = ActionScaler((0.2, 0.0, 0.0), (0.1, 0.01, 0.05), frameskip=8)
    Policy.fit(latents, *actions, horizon=8, size=size, channels=(8,), training=training, scaler=scaler).save(
        folder / "policy"
    )
    cell = replace(paths_once.cell, folder=folder)
    return Bench(cell, paths_once.spec, paths_once.protocol, pooled_with=GUIDED)


GUIDED = ("proposal", "proposal-acid", "proposal-turn", "policy", "policy-open")


@pytest.mark.parametrize("name", GUIDED)
def test_a_policy_of_paths_plans_and_is_searched_around(guided: Bench, name: str):
    contender = CellContender(guided.cell, name, weight(name), guided.spec)
    from acid.tasks.navigation import Navigation

    (instance,) = guided.cell.instances(guided.protocol)[:1]
    task = Navigation(size=32)
    opened = contender.open(guided.protocol, [], {})
    (episode,) = play(task, opened.agent, [instance], protocol=guided.protocol)
    task.close()
    assert np.isfinite(list(episode.metrics.values())).all()
    assert (episode.steps, episode.decisions) == (8, 1)
    assert ("rank_goal" in episode.pool) == name.startswith("proposal")


def test_only_arcs_are_searched_around_a_policy(guided: Bench):
    other = Bench(guided.cell, replace(guided.spec, candidates="line"), guided.protocol)
    with pytest.raises(AcidError, match="a policy proposes candidates of the family 'arc', not 'line'"):
        condition("proposal").check_applies(other)


def test_every_condition_is_tried_here():
    tried = {
        *PLANNED,
        *VARIANTS,
        *DISTURBED,
        "acid-swapped",
        "noop",
        "random",
        "policy",
        "policy-open",
        "prior",
        "chance",
        *PARTS,
        *PATH_CONDITIONS,
        *REFUSED_BY_LATENT,
        *GUIDED,
    }
    assert tried == CONDITIONS.keys()


def test_a_goal_that_a_task_draws_is_due_at_the_end():
    protocol = bench(goal_offset=None).protocol
    assert protocol.steps_left(protocol.budget, 1) == protocol.budget
    assert protocol.steps_left(1, 1) == protocol.steps_left(0, 1) == 1
    condition("policy").check_applies(bench(goal_offset=None))


@pytest.mark.parametrize("name", ["prior", "chance"])
def test_choices_from_a_pool_need_one_iteration(latent: Bench, name: str):
    with pytest.raises(AcidError, match=f"'{name}' chooses from a pool: it needs a CEM with 1 iteration"):
        condition(name).build(latent, None)
    other = bench(spec=SearchSpec("mppi", 6, 1, horizon=2))
    with pytest.raises(AcidError, match="needs a CEM with 1 iteration"):
        condition(name).build(other, None)


def test_a_weight_is_given_where_there_is_one_and_nowhere_else(latent: Bench):
    with pytest.raises(AcidError, match="the condition 'acid' needs a λ, got None"):
        condition("acid").build(latent, None)
    with pytest.raises(AcidError, match=r"the condition 'original' has no λ, got 0\.5"):
        condition("original").build(latent, 0.5)
    for lam in (-0.5, float("nan")):
        with pytest.raises(AcidError, match="must be a finite number that is not negative"):
            condition("acid").build(latent, lam)


def test_unknown_names_are_answered_with_known_ones():
    with pytest.raises(UnknownNameError, match="unknown condition 'acdi'; did you mean 'acid'"):
        condition("acdi")


def test_conditions_can_be_told_apart():
    looks = {name: entry.look for name, entry in CONDITIONS.items()}
    assert len({look.label for look in looks.values()}) == len(looks)
    planned = [looks[name] for name in (*PLANNED, "acid-path", "turn")]
    assert len({(look.colour, look.marker) for look in planned}) == len(planned)


def test_a_weight_may_be_chosen_for_another_condition():
    assert condition("acid-clipped").chosen_as == condition("proposal-acid").chosen_as == "acid"
    assert condition("control").chosen_as == "control"
    assert all(CONDITIONS[entry.chosen_as].weighted == entry.weighted for entry in CONDITIONS.values())


def test_a_pool_is_judged_by_the_terms_of_those_that_share_it(paths: Bench):
    names = [term.name for term in terms(paths.kit, ["original", "acid", "acid-clipped", "turn"])]
    assert names == ["goal", "consistency", "turn"]


def test_weights_of_zero_plan_like_the_original(latent: Bench):
    (instance,) = REACHER.instances(latent.protocol).unsolved[:1]
    plans = []
    for name, lam in (("original", None), ("acid", 0.0), ("acid", 2.0)):
        (episode,) = play(latent.task, condition(name).build(latent, lam), [instance], protocol=latent.protocol)
        plans.append((episode.final_error, episode.consistency))
    assert plans[0] == plans[1] != plans[2]


def test_a_condition_whose_weights_ignore_lambda_is_refused(latent: Bench):
    forgetful = replace(condition("control"), terms=lambda kit, lam: [ActionNorm(Adaptive(0.1))])
    with pytest.raises(AcidError, match="weights of the condition 'control' are the same for every λ; make them of λ"):
        forgetful.build(latent, 0.5)
    single = replace(condition("control"), terms=lambda kit, lam: ActionNorm(Adaptive(lam)))
    with pytest.raises(AcidError, match="'control' must give a list of terms, got a ActionNorm"):
        single.build(latent, 0.5)
