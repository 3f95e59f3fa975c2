"""Cost terms and weights."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_toys import SEARCHES, Integrator, Verifier, planner, problem

from acid.errors import AcidError, PlanningError, ShapeError
from acid.planning import (
    CEM,
    ActionConsistency,
    ActionNorm,
    Adaptive,
    Constant,
    Cost,
    Custom,
    GoalDistance,
    VerifierView,
    acid_cost,
    goal_cost,
)
from acid.planning.search import lowest
from acid.planning.spread import spread
from acid.types import ActionScaler, Trajectory


def trajectory(problems=2, candidates=5, horizon=3, seed=0) -> Trajectory:
    generator = torch.Generator().manual_seed(seed)
    latents = torch.randn(problems, candidates, horizon + 1, 2, 2, generator=generator, dtype=torch.float64)
    return Trajectory(latents, torch.randn(problems, candidates, horizon, 2, generator=generator, dtype=torch.float64))


def fixed(values: torch.Tensor, name: str, weight=None) -> Custom:
    return Custom(lambda trajectory, goal: values, name, weight or Constant(1.0))


def elites_of(goal_values, other_values, lam, count=4):
    cost = Cost([fixed(goal_values, "goal"), fixed(other_values, "other", Adaptive(lam))])
    evaluation = cost.evaluate(trajectory(*goal_values.shape), torch.zeros(2, 2, 2))
    return lowest(evaluation.total, count).index.sort(1).values


scales = st.floats(1e-3, 1e3)
shifts = st.floats(-1e3, 1e3)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), lam=st.floats(0.01, 3.0), scale=scales, shift=shifts, which=st.booleans())
def test_elites_do_not_change_when_either_cost_is_scaled_or_shifted(seed, lam, scale, shift, which):
    generator = torch.Generator().manual_seed(seed)
    goal, other = (torch.randn(2, 20, generator=generator, dtype=torch.float64) for _ in range(2))
    changed = (scale * goal + shift, other) if which else (goal, scale * other + shift)
    assert torch.equal(elites_of(goal, other, lam), elites_of(*changed, lam))


@pytest.mark.parametrize("scaled", ["goal", "consistency"])
def test_whole_plans_do_not_change_when_either_cost_is_scaled_and_shifted(scaled):
    terms = {"goal": GoalDistance(), "consistency": ActionConsistency(Verifier())}
    weights = {"goal": Constant(1.0), "consistency": Adaptive(0.5)}

    def cost(factor, shift):
        def change(name):
            change = name == scaled
            return lambda t, g: terms[name](t, g) * (factor if change else 1) + (shift if change else 0)

        return Cost([Custom(change(name), name, weights[name]) for name in terms])

    plain, changed = (planner(SEARCHES["cem"], cost=cost(*how)).solve(problem()) for how in ((1, 0), (37.0, 5.0)))
    torch.testing.assert_close(plain.actions, changed.actions)


@pytest.mark.parametrize(("scale", "winner"), [(0.5, 0), (2.0, 3)])
def test_elites_do_change_with_scale_under_a_constant_weight(scale, winner):
    goal = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    cost = Cost([fixed(goal, "goal"), fixed(-scale * goal, "other")])
    assert lowest(cost.evaluate(trajectory(1, 4), torch.zeros(1, 2, 2)).total, 1).index.item() == winner


def test_adaptive_weight_equalises_the_spreads():
    evaluation = acid_cost(Verifier(), 0.3).evaluate(trajectory(), torch.zeros(2, 2, 2))
    values = evaluation.weights["consistency"][:, None] * evaluation.terms["consistency"]
    torch.testing.assert_close(values.std(1), 0.3 * evaluation.terms["goal"].std(1))


def test_spread_is_torch_std_and_exactly_zero_for_equal_costs():
    values = torch.randn(3, 9)
    everything = torch.ones(3, 9, dtype=torch.bool)
    torch.testing.assert_close(spread(values, everything), values.std(1))
    assert torch.equal(spread(torch.full((1, 7), 0.1), everything[:1, :7]), torch.zeros(1))
    assert torch.equal(spread(values[:, :1], everything[:, :1]), torch.zeros(3))


def plain_spread(values, usable):
    """The standard deviation without any scaling: right as long as no square under- or overflows."""
    offset = (values - values.masked_fill(~usable, torch.inf).amin(1, keepdim=True)).masked_fill(~usable, 0.0)
    count = usable.sum(1)
    mean = offset.sum(1) / count.clamp(min=1)
    squares = (offset - mean[:, None]).masked_fill(~usable, 0.0).square().sum(1)
    return (squares / (count - 1).clamp(min=1)).sqrt()


def some_costs(seed, dtype, scale=1.0, shift=0.0, count=300):
    generator = torch.Generator().manual_seed(seed)
    values = scale * torch.randn(3, count, generator=generator, dtype=dtype) + shift
    return values, torch.rand(3, count, generator=generator) < 0.9


dtypes = st.sampled_from([torch.float32, torch.float64])


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000), dtype=dtypes, magnitude=st.floats(-6, 6), shift=shifts, count=st.integers(1, 300))
def test_scaling_inside_the_spread_changes_no_bit_at_ordinary_magnitudes(seed, dtype, magnitude, shift, count):
    values, usable = some_costs(seed, dtype, 10**magnitude, shift, count)
    assert torch.equal(spread(values, usable), plain_spread(values, usable))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), dtype=dtypes, power=st.integers(-100, 120))
def test_the_spread_scales_with_the_costs_bit_for_bit(seed, dtype, power):
    values, usable = some_costs(seed, dtype)
    assert torch.equal(spread(values * 2.0**power, usable), spread(values, usable) * 2.0**power)


@pytest.mark.parametrize("scale", [1e-35, 1e-24, 1e20, 1e37])
def test_costs_of_any_magnitude_keep_their_adaptive_weight(scale):
    values, usable = some_costs(0, torch.float32)
    for big in (values * scale, values.abs() * scale):
        factors = Adaptive(0.5)(spread(big, usable), torch.full((3,), scale))
        for row, mask, factor in zip(big.double(), usable, factors, strict=True):
            torch.testing.assert_close(factor, (0.5 * scale / row[mask].std()).float())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), power=st.integers(-80, 80), which=st.booleans())
def test_elites_do_not_change_when_either_cost_is_scaled_beyond_where_squares_fit(seed, power, which):
    goal, other = some_costs(seed, torch.float32)[0], some_costs(seed + 1, torch.float32)[0]
    changed = (goal * 2.0**power, other) if which else (goal, other * 2.0**power)
    assert torch.equal(elites_of(goal, other, 0.3), elites_of(*changed, 0.3))


@pytest.mark.parametrize("tiny", [0.0, 1e-44])
def test_no_spread_means_weight_zero(tiny):
    goal = torch.randn(1, 6)
    flat = torch.full((1, 6), 0.1) if tiny == 0 else torch.linspace(0, 1, 6)[None] * tiny
    cost = Cost([fixed(goal, "goal"), fixed(flat, "flat", Adaptive(1.0))])
    evaluation = cost.evaluate(trajectory(1, 6), torch.zeros(1, 2, 2))
    assert evaluation.weights["flat"].item() == 0
    assert torch.equal(evaluation.total, goal)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_non_finite_candidate_ranks_last_and_is_left_out_of_the_spreads(bad):
    generator = torch.Generator().manual_seed(0)
    goal, other = (torch.randn(1, 6, generator=generator) for _ in range(2))
    broken = other.clone()
    broken[0, 2] = bad
    evaluation = Cost([fixed(goal, "goal"), fixed(broken, "other", Adaptive(0.5))]).evaluate(
        trajectory(1, 6), torch.zeros(1, 2, 2)
    )
    assert evaluation.total[0, 2] == math.inf
    kept = [0, 1, 3, 4, 5]
    torch.testing.assert_close(evaluation.spreads["goal"], goal[:, kept].std(1))
    torch.testing.assert_close(evaluation.spreads["other"], other[:, kept].std(1))
    elites = lowest(evaluation.total, 6)
    assert elites.share[0].tolist() == pytest.approx([0.2] * 5 + [0.0])
    torch.testing.assert_close(elites.mean(broken)[0], other[0, kept].mean())  # 0 · NaN must not leak


def test_costs_that_are_known_are_weighed_as_if_they_were_evaluated():
    rng = torch.Generator().manual_seed(0)
    values = {name: torch.randn(2, 9, generator=rng, dtype=torch.float64) for name in ("goal", "other", "unused")}
    cost = Cost([fixed(values["goal"], "goal"), fixed(values["other"], "other", Adaptive(0.5))])
    weighed, evaluated = cost.weigh(values), cost.evaluate(trajectory(2, 9), torch.zeros(2, 2, 2))
    assert torch.equal(weighed.total, evaluated.total)
    assert weighed.terms.keys() == {"goal", "other"}
    assert torch.equal(weighed.weights["other"], evaluated.weights["other"])


def test_goal_distance_sums_or_averages_over_tokens():
    imagined, goal = trajectory(), torch.randn(2, 2, 2, dtype=torch.float64)
    by_hand = ((imagined.latents[:, :, -1] - goal[:, None]) ** 2).flatten(2)
    torch.testing.assert_close(GoalDistance()(imagined, goal), by_hand.sum(-1))
    torch.testing.assert_close(GoalDistance("mean")(imagined, goal), by_hand.mean(-1))


def test_consistency_is_the_mean_of_its_steps_and_vanishes_for_a_true_verifier():
    class Exact(Verifier):
        def infer(self, latent, next_latent):
            return (next_latent[..., 1, :] - latent[..., 1, :]) / 0.5

    solved = planner(CEM(samples=8, iterations=1, elites=2), cost=acid_cost(Exact())).solve(problem())
    torch.testing.assert_close(solved.consistency, torch.zeros_like(solved.consistency))
    term, imagined = ActionConsistency(Verifier()), trajectory()
    assert term.per_step(imagined).shape == (2, 5, 3)
    torch.testing.assert_close(term(imagined, torch.zeros(2, 2, 2)), term.per_step(imagined).mean(-1))


def test_any_term_may_tell_its_steps():
    class Effort:
        name, weight = "effort", Constant(0.0)  # even one that plays no part in the search

        def per_step(self, trajectory):
            evaluated.append(trajectory.actions.shape[1])
            return trajectory.actions.square().sum(-1)

        def __call__(self, trajectory, goal):
            return self.per_step(trajectory).mean(-1)

    evaluated = []
    cost = Cost([GoalDistance(), Effort(), ActionConsistency(Verifier())])
    plan = planner(SEARCHES["cem"], cost=cost).solve(problem())
    assert evaluated == [1]
    assert list(plan.per_step) == ["effort", "consistency"]
    torch.testing.assert_close(plan.per_step["effort"], plan.actions.square().sum(-1))
    torch.testing.assert_close(plan.costs["effort"], plan.per_step["effort"].mean(-1))
    assert plan.consistency is plan.per_step["effort"]


def test_steps_of_the_wrong_shape_are_named():
    class Flat(ActionNorm):
        def per_step(self, trajectory):
            return trajectory.actions.sum((-2, -1))

    with pytest.raises(ShapeError, match=r"`per_step` of cost term 'action_norm' .* \[3, 1, 4\], got \[3, 1\]"):
        planner(SEARCHES["cem"], cost=Cost([GoalDistance(), Flat()])).solve(problem())


def test_a_view_shows_the_verifier_features_and_units_of_its_own():
    imagined = trajectory()
    plain = ActionConsistency(Verifier())
    halved = Trajectory(imagined.latents / 2, imagined.actions / 3)
    view = VerifierView(Verifier(), features=lambda z: 2 * z, units=lambda a: 3 * a)
    term = ActionConsistency(view)
    assert term.view is view
    torch.testing.assert_close(view.asked(halved), imagined.actions)
    torch.testing.assert_close(view.inferred(halved), plain.view.inferred(imagined))
    torch.testing.assert_close(term.differences(halved), plain.differences(imagined))
    torch.testing.assert_close(term.per_step(halved), plain.differences(imagined).square().sum(-1))
    assert acid_cost(view).terms[1] == ActionConsistency(view)


SCALER = ActionScaler((0.1, 0.2), (1.0, 2.0), frameskip=1)
BLOCK = ActionScaler((0.1,), (1.0,), frameskip=2)


@pytest.mark.parametrize(
    ("own", "of_the_planner", "agree"),
    [
        (SCALER, SCALER, True),
        (ActionScaler((0.1 + 1e-7, 0.2), (1.0, 2.0 - 1e-7)), SCALER, True),  # as stored in single precision
        (ActionScaler((0.1, 0.2), (1.0, 2.1)), SCALER, False),
        (ActionScaler((0.2, 0.2), (1.0, 2.0)), SCALER, False),
        (ActionScaler((0.1,), (1.0,)), SCALER, False),
        (ActionScaler((0.1, 0.1), (1.0, 1.0)), BLOCK, True),  # the block as one action of twice the numbers
        (BLOCK, SCALER, False),
    ],
)
def test_a_verifier_of_other_action_statistics_is_refused(own, of_the_planner, agree):
    class Fitted(Verifier):
        scaler = own

    def make(verifier):
        return planner(SEARCHES["cem"], cost=acid_cost(verifier), scaler=of_the_planner)

    if agree:
        make(Fitted())
    else:
        with pytest.raises(PlanningError, match=r"verifier was fitted with other action statistics .*VerifierView"):
            make(Fitted())
    make(VerifierView(Fitted(), units=lambda actions: actions))  # converts, so it may differ
    planner(SEARCHES["cem"], cost=acid_cost(Fitted()))  # no scaler to compare with


def test_along_a_path_errors_that_cancel_count_less_than_errors_that_add_up():
    class Off(Verifier):
        def __init__(self, errors):
            self.errors = torch.tensor(errors, dtype=torch.float64)[:, None]

        def infer(self, latent, next_latent):
            return imagined.actions + self.errors

    imagined = trajectory()
    for errors, along in (([1.0, -1.0, 1.0], [1.0, 0.0, 1.0]), ([1.0, 1.0, 1.0], [1.0, 4.0, 9.0])):
        steps = ActionConsistency(Off(errors)).per_step(imagined)
        path = ActionConsistency(Off(errors), path=lambda actions: actions.cumsum(-2)).per_step(imagined)
        size = imagined.actions.shape[-1]
        torch.testing.assert_close(steps, torch.full_like(steps, size))
        torch.testing.assert_close(path, size * torch.tensor(along, dtype=torch.float64).expand_as(path))


def test_action_norm_prefers_small_actions():
    strong = planner(SEARCHES["cem"], cost=Cost([GoalDistance(), ActionNorm(Adaptive(5.0))])).solve(problem())
    weak = planner(SEARCHES["cem"], cost=goal_cost()).solve(problem())
    assert (strong.actions.square().sum((1, 2)) < weak.actions.square().sum((1, 2))).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cost([]), "at least one term"),
        (lambda: Cost([GoalDistance(), GoalDistance()]), "'goal' is used twice"),
        (lambda: Cost([GoalDistance(name="total")]), "'total' is reserved"),
        (lambda: Cost([GoalDistance(weight=Constant(0.0))]), "'goal' is the reference"),
        (lambda: Cost([ActionNorm()]), "'action_norm' is the reference"),
        (lambda: Adaptive(math.nan), "λ of the adaptive weight must be a finite number that is not negative, got nan"),
        (lambda: Constant(math.inf), "constant weight must be a finite number that is not negative, got inf"),
        (lambda: Adaptive(-1.0), "λ of the adaptive weight must be .* not negative, got -1.0"),
        (lambda: Constant(-0.5), "constant weight must be .* not negative, got -0.5"),
        (lambda: GoalDistance("max"), "'sum' or 'mean', got 'max'"),
    ],
)
def test_bad_costs_say_what_is_wrong(make, message):
    with pytest.raises(PlanningError, match=message):
        make()


def test_a_term_of_the_wrong_shape_is_named():
    cost = Cost([Custom(lambda t, g: t.actions.sum(-1), "mine")])
    with pytest.raises(ShapeError, match=r"'mine' must return \[B, N\] = \[3, 64\], got \[3, 64, 4\]"):
        planner(SEARCHES["cem"], cost=cost).solve(problem())


def test_a_verifier_for_other_actions_is_named():
    class Narrow(Verifier):
        def infer(self, latent, next_latent):
            return super().infer(latent, next_latent)[..., :1]

    with pytest.raises(ShapeError, match=r"'consistency' returned actions \[3, 64, 4, 1\] .* \[3, 64, 4, 2\]"):
        planner(SEARCHES["cem"], model=Integrator(), cost=acid_cost(Narrow())).solve(problem())


def test_weights_are_constants_to_a_gradient():
    imagined = trajectory()
    actions = imagined.actions.clone().requires_grad_()
    evaluation = Cost([Custom(lambda t, g: t.actions.sum((-2, -1)), "sum"), ActionNorm(Adaptive(0.5))]).evaluate(
        Trajectory(imagined.latents, actions), torch.zeros(2, 2, 2)
    )
    assert evaluation.total.requires_grad
    assert not any(values.requires_grad for values in (*evaluation.weights.values(), *evaluation.spreads.values()))


def test_equal_costs_keep_the_order_of_the_candidates():
    assert lowest(torch.zeros(2, 5000), 7).index.tolist() == [list(range(7))] * 2


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Cost(GoalDistance()), "a cost needs a list of terms, got a GoalDistance"),
        (lambda: Cost([lambda trajectory, goal: 0]), r"a cost term needs a `name`, got .*Custom\(fn, name=...\) gives"),
        (lambda: Cost([GoalDistance]), "a cost term must be an object, got the class GoalDistance"),
        (
            lambda: Cost([GoalDistance(), ActionNorm(0.1)]),
            "weight of cost term 'action_norm' must be a Weight, got 0.1",
        ),
        (lambda: acid_cost(None), "the verifier of term 'consistency' needs the method 'infer', which a NoneType"),
    ],
)
def test_what_is_no_term_weight_or_verifier_is_named(make, complaint):
    with pytest.raises(AcidError, match=complaint):
        make()
