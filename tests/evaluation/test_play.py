"""The one loop: when an episode ends, what is counted, what is compared, what is kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluation_fakes import PROTOCOL, Adder, Blind, Line, PathLine, Walker, instance, path_instance

from acid.errors import AcidError
from acid.evaluation import Decision, NoOpAgent, PlanningAgent, Protocol, Situation, play
from acid.evaluation.play import Film, PlanFilm, execute, render_states
from acid.planning import CEM, Planner, acid_cost


def one(task: Line, agent: Any, start: float, goal: float, **options: Any):
    (episode,) = play(task, agent, [instance(start, goal)], protocol=PROTOCOL, **options)
    return episode


def test_an_episode_stops_at_its_first_success():
    # 3 steps away at speed 1 with blocks of 5: the rest of the block would overshoot.
    episode = one(Line(), Walker(), 10, 13)
    assert (episode.success, episode.steps, episode.decisions) == (True, 3, 1)
    assert (episode.initial_error, episode.best_error, episode.final_error) == (3, 0, 0)


def test_a_start_that_is_solved_already_is_still_played_one_step():
    episode = one(Line(), NoOpAgent(np.zeros(1)), 10, 10)
    assert (episode.success, episode.steps, episode.initial_error) == (True, 1, 0)


def test_an_episode_stops_at_the_budget():
    agent = Walker(block=4)  # 4 + 4 + 2 of 4 steps
    episode = one(Line(), agent, 10, 30)
    assert (episode.success, episode.steps, episode.decisions) == (False, 10, 3)
    assert episode.final_error == 10
    assert [call.left for call in agent.calls] == [10, 6, 2]


def test_the_best_error_may_lie_between_start_and_end():
    episode = one(Line(), Walker(speed=4.0), 10, 13)
    assert not episode.success
    assert episode.best_error == 1 < episode.final_error


def test_only_running_episodes_are_replanned_and_share_their_calls():
    agent = Walker()
    instances = [instance(10, 12, 0), instance(10, 18, 1), instance(10, 90, 2)]
    episodes = play(Line(), agent, instances, protocol=PROTOCOL)
    assert [list(call.instances) for call in agent.calls] == [["i0", "i1", "i2"], ["i1", "i2"]]
    assert [call.plan for call in agent.calls] == [0, 1]
    assert [episode.success for episode in episodes] == [True, True, False]
    assert [episode.cpu_seconds for episode in episodes] == [1.0, 2.0, 2.0]
    assert [episode.wall_seconds for episode in episodes] == [2.0, 4.0, 4.0]


def test_a_batch_gives_what_one_by_one_gives():
    instances = [instance(10, goal, number) for number, goal in enumerate((12, 18, 90, 5))]
    together = Walker(), Walker()
    batched = play(Line(), together[0], instances, protocol=PROTOCOL)
    single = [play(Line(), together[1], [i], protocol=PROTOCOL)[0] for i in instances]
    assert [(e.success, e.steps, e.final_error) for e in batched] == [
        (e.success, e.steps, e.final_error) for e in single
    ]
    assert set(together[0].calls[0].seeds) <= {seed for call in together[1].calls for seed in call.seeds}


def test_seeds_differ_between_instances_plans_and_runs():
    agent = Walker()
    for seed in (0, 1):
        play(Line(), agent, [instance(10, 90, 0), instance(10, 90, 1)], protocol=Protocol(5, 10, seed))
    seeds = [seed for call in agent.calls for seed in call.seeds]
    assert len(set(seeds)) == 8


class Dreamer(Walker):
    """A walker that imagines ending at the goal, two ahead of where its plan really ends."""

    def act(self, situation: Situation) -> Decision:
        decision = super().act(situation)
        ends = situation.frames[:, -1, 0, 0, 0] + decision.env_actions.sum((1, 2))

        def gap(pixels: np.ndarray) -> torch.Tensor:
            assert (pixels[:, 0, 0, 0] == ends).all()  # the plan's own end, even where the episode stopped before
            return torch.full((len(pixels),), 4.0)

        return Decision(decision.env_actions, goal_cost=torch.arange(len(ends)) + 0.5, gap=gap)


def test_a_plan_is_compared_with_reality_at_its_own_end():
    instances = [instance(10, 12, 0), instance(10, 90, 1)]
    first, second = play(Line(), Dreamer(block=8), instances, protocol=PROTOCOL)
    assert (first.steps, first.final_error, first.gap, first.goal_cost) == (2, 0, 4.0, 0.5)
    assert (second.steps, second.final_error) == (10, 70)  # the overhang of the second plan does not count
    assert second.gap == 4.0


class Distance(Line):
    """Judged by how far it ends from the goal, not by whether it was there."""

    metric = "distance"


class Overshooter(Walker):
    """Walks on whatever happens, and thinks that every plan ends at 20."""

    def act(self, situation: Situation) -> Decision:
        actions = np.full((len(situation.instances), self.block, 1), self.speed)
        return Decision(actions, imagined_pose=np.full((len(actions), 1, 1), 20.0))


def test_where_the_distance_counts_an_episode_goes_on_after_success_and_every_plan_is_remembered():
    episode = one(Distance(), Overshooter(block=5), 10, 13)
    assert episode.success
    assert (episode.steps, episode.errors, episode.final_error, episode.best_error) == (10, [2.0, 7.0], 7.0, 0.0)
    assert episode.imagined_errors == [7.0, 7.0]
    assert episode.metrics == {"distance": 7.0}


def test_imagined_steps_beyond_the_budget_do_not_count():
    class Far(Overshooter):
        def act(self, situation: Situation) -> Decision:
            return Decision(np.full((1, 20, 1), self.speed), imagined_pose=np.full((1, 4, 1), 20.0))

    episode = one(Distance(), Far(), 10, 13)
    assert len(episode.imagined_errors) == len(episode.errors) == 2  # ten steps of five


def test_steps_that_change_nothing_are_missed():
    episode = one(Distance(), Overshooter(speed=0.0, block=4), 10, 13)
    assert episode.missed_steps == episode.steps == 10


def test_agents_that_imagine_nothing_cost_no_extra_simulation():
    task = Line()
    one(task, Walker(block=8), 10, 12)
    assert (task.advances, task.renders) == (2, 2)  # start and goal only


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 0, 1), r"Fake decided on actions of shape \[1, 0, 1\] for 1 episodes"),
        ((2, 5, 1), r"actions of shape \[2, 5, 1\]"),
        ((5, 1), r"actions of shape \[5, 1\]"),
    ],
)
def test_actions_that_nobody_can_execute_are_refused(shape, message):
    class Fake:
        def act(self, situation: Situation) -> Decision:
            return Decision(np.zeros(shape))

    with pytest.raises(AcidError, match=message):
        one(Line(), Fake(), 10, 12)


PATHS = Protocol.of(PathLine.setup)


class Steps:
    """Carries out the same steps whatever it sees, and asks what others would have led to."""

    def __init__(self, *steps: float) -> None:
        self.steps, self.asked, self.judged = steps, [], []
        self.others = np.array([[0.0] * len(steps), [1.0] * len(steps)])[..., None]

    def act(self, situation: Situation) -> Decision:
        self.asked.append(situation)
        self.judged.append([situation.judge(b, self.others).tolist() for b in range(len(situation.instances))])  # type: ignore[union-attr]
        return Decision(np.tile(np.array(self.steps)[None, :, None], (len(situation.instances), 1, 1)))


def test_a_path_is_judged_as_planned_and_driven_to_its_end():
    agent = Steps(1, 1, 4)
    (episode,) = play(PathLine(), agent, [path_instance(10, 11, 13, 15)], protocol=PATHS)
    assert episode.metrics == {"off_m": pytest.approx((0 + 1 + 1) / 3), "beyond": 1.0}
    assert (episode.final_error, episode.errors, episode.success) == (1, [4, 3, 1], False)
    assert episode.plan is not None
    assert episode.plan.tolist() == [[1], [1], [4]]


@pytest.mark.parametrize(("steps", "reached"), [((5, 0, 0), True), ((5, 0, 5), False), ((0, 0, 5), True)])
def test_a_path_succeeds_by_where_it_ends_not_by_where_it_has_been(steps, reached):
    (episode,) = play(PathLine(), Steps(*steps), [path_instance(10, 11, 13, 15)], protocol=PATHS)
    assert (episode.success, episode.steps) == (reached, 3)


def test_an_agent_is_shown_the_frames_before_and_told_the_last_action():
    agent = Steps(1, 2, 3)
    play(PathLine(), agent, [path_instance(10, 11, 12, 13), path_instance(30, 31, 32, 33, number=1)], protocol=PATHS)
    (asked,) = agent.asked
    assert asked.frames[:, :, 0, 0, 0].tolist() == [[9, 10], [29, 30]]
    assert asked.last_actions is not None
    assert asked.last_actions.tolist() == [[1], [1]]
    assert agent.judged == [[[2, 0], [2, 0]]]  # standing still is off by 1, 2 and 3


def test_the_context_moves_on_with_every_model_step():
    agent = Steps(1, 2)
    play(PathLine(), agent, [path_instance(10, 11, 12)], protocol=Protocol(2, budget=4))
    first, second = agent.asked
    assert second.frames[0, :, 0, 0, 0].tolist() == [11, 13]
    assert first.last_actions is not None
    assert second.last_actions is None  # later it would have to be measured


def test_plans_that_end_before_their_path_are_refused():
    with pytest.raises(AcidError, match="plans of 2 steps cannot be compared with the paths of pathline, which have 3"):
        play(PathLine(), Walker(block=2), [path_instance(10, 11, 12, 13)], protocol=PATHS)


def test_without_a_path_nothing_is_judged():
    agent = Walker()
    one(Line(), agent, 10, 12)
    assert agent.calls[0].judge(0, np.zeros((2, 5, 1))) is None
    assert agent.calls[0].last_actions is None


@pytest.fixture
def filmed():
    planner = Planner(Adder(), acid_cost(Blind(), 0.5), CEM(16, 3, 4), horizon=2)
    (episode,) = play(Line(), PlanningAgent(planner, 1), [instance(10, 40)], protocol=PROTOCOL, film=True)
    assert episode.film is not None
    return episode.film


def test_a_film_holds_what_was_seen_and_what_was_imagined(filmed: Film):
    assert len(filmed.frames) == len(filmed.errors) == 11
    assert (filmed.goal == 40).all()
    assert filmed.errors[0] == 30
    assert len(filmed.plans) == 2
    for plan in filmed.plans:
        assert plan.imagined.shape == (2, 1, 1)  # what was seen, and the one step that was executed
        assert plan.residuals.shape == (1,)
        assert plan.spreads.keys() == plan.weights.keys() == {"goal", "consistency"}
        assert {values.shape for values in plan.spreads.values()} == {(3,)}
    shown = [float(frame[0, 0, 0]) for frame in filmed.frames]
    assert float(filmed.plans[1].imagined[0]) == shown[5]  # the second plan begins where the first one ended


def test_a_film_comes_back_from_disk(filmed: Film, tmp_path: Path):
    filmed.save(tmp_path / "new" / "film.npz")
    loaded = Film.load(tmp_path / "new" / "film.npz")
    np.testing.assert_array_equal(np.stack(loaded.frames), np.stack(filmed.frames))
    np.testing.assert_array_equal(loaded.goal, filmed.goal)
    assert loaded.errors == filmed.errors
    assert len(loaded.plans) == len(filmed.plans)
    for a, b in zip(loaded.plans, filmed.plans, strict=True):
        assert torch.equal(a.imagined, b.imagined)
        np.testing.assert_array_equal(a.residuals, b.residuals)
        for kind in ("spreads", "weights"):
            found, wanted = getattr(a, kind), getattr(b, kind)
            assert found.keys() == wanted.keys()
            assert all((found[name] == wanted[name]).all() for name in wanted)


def test_films_of_many_plans_keep_their_order(tmp_path: Path):
    frame = np.zeros((8, 8, 3), np.uint8)
    plans = [PlanFilm(torch.full((2, 1, 1), float(k)), np.zeros(0), {}, {}) for k in range(12)]
    Film(frame, [frame], [0.0], plans).save(tmp_path / "film.npz")
    assert [int(plan.imagined[0]) for plan in Film.load(tmp_path / "film.npz").plans] == list(range(12))


def test_nothing_is_filmed_unless_asked():
    assert one(Line(), Walker(), 10, 12).film is None


def test_states_and_actions_as_frames():
    task = Line()
    assert render_states(task, np.array([[3.0], [7.0]]))[:, 0, 0, 0].tolist() == [3, 7]
    frames, state = execute(task, np.array([10.0]), np.ones((6, 1)), every=3)
    assert (frames[:, 0, 0, 0].tolist(), state.tolist()) == ([13, 16], [16])


def test_plans_are_carried_out_by_the_tasks_own_commands():
    class Doubled(Line):
        def command(self, action: np.ndarray) -> np.ndarray:
            return 2 * action

    assert one(Doubled(), Walker(block=10), 10, 16).steps == 3
    assert execute(Doubled(), np.array([10.0]), np.ones((2, 1)))[1].tolist() == [14]
