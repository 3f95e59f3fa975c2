from __future__ import annotations

import numpy as np
import pytest
import torch
from evaluation_fakes import PROTOCOL, Line, Walker, instance, provenance

from acid.evaluation import Condition, Decision, RowFile, play, read_rows, run, same_in_a_file

CONDITION = Condition("line", "m", "original", "cem-n3-j1-k1")


def run_all(path, agent, instances, *, protocol=PROTOCOL, batch=8, **checkpoints):
    task = Line()
    seen = []
    made = provenance(**checkpoints)
    with RowFile(path, same_in_a_file(protocol, made)) as writer:
        run(
            lambda: task,
            agent,
            instances,
            protocol=protocol,
            condition=CONDITION,
            provenance=made,
            writer=writer,
            batch=batch,
            progress=lambda done, total: seen.append((done, total)),
        )
    return task, seen, read_rows([path])


def test_an_episode_stops_at_its_first_success():
    # 3 steps away at speed 1 with blocks of 5: the rest of the block would overshoot.
    (episode,) = play(Line(), Walker(), [instance(10, 13)], protocol=PROTOCOL)
    assert (episode.success, episode.steps, episode.plans) == (True, 3, 1)
    assert (episode.initial_error, episode.best_error, episode.final_error) == (3, 0, 0)


def test_an_episode_stops_at_the_budget():
    agent = Walker(block=4)  # 4 + 4 + 2 of 4 steps
    (episode,) = play(Line(), agent, [instance(10, 30)], protocol=PROTOCOL)
    assert (episode.success, episode.steps, episode.plans) == (False, 10, 3)
    assert episode.final_error == 10
    assert [call.left for call in agent.calls] == [10, 6, 2]


def test_the_best_error_may_lie_between_start_and_end():
    (episode,) = play(Line(), Walker(speed=4.0), [instance(10, 13)], protocol=PROTOCOL)
    assert not episode.success
    assert episode.best_error == 1 < episode.final_error


def test_only_running_episodes_are_replanned_and_share_their_calls():
    agent = Walker()
    instances = [instance(10, 12, 0), instance(10, 18, 1), instance(10, 90, 2)]
    episodes = play(Line(), agent, instances, protocol=PROTOCOL)
    assert [call.size for call in agent.calls] == [3, 2]
    assert [episode.success for episode in episodes] == [True, True, False]
    assert [episode.plan_seconds for episode in episodes] == [1.0, 2.0, 2.0]


def test_a_batch_gives_what_one_by_one_gives():
    instances = [instance(10, goal, number) for number, goal in enumerate((12, 18, 90, 5))]
    together = Walker(), Walker()
    batched = play(Line(), together[0], instances, protocol=PROTOCOL)
    single = [play(Line(), together[1], [i], protocol=PROTOCOL)[0] for i in instances]
    assert [(e.success, e.steps, e.final_error) for e in batched] == [
        (e.success, e.steps, e.final_error) for e in single
    ]
    assert set(together[0].calls[0].seeds) <= {seed for call in together[1].calls for seed in call.seeds}


def test_seeds_differ_between_instances_plans_and_protocol_seeds():
    agent = Walker()
    play(Line(), agent, [instance(10, 90, 0), instance(10, 90, 1)], protocol=PROTOCOL)
    seeds = [seed for call in agent.calls for seed in call.seeds]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**32 for seed in seeds)


class Dreamer(Walker):
    """A walker that imagines ending at the goal, two ahead of where its plan really ends."""

    def act(self, observations, goals, *, left, seeds):
        decision = super().act(observations, goals, left=left, seeds=seeds)
        ends = observations[:, 0, 0, 0] + decision.env_actions.sum((1, 2))

        def gap(pixels: np.ndarray) -> torch.Tensor:
            assert (pixels[:, 0, 0, 0] == ends).all()  # the plan's own end, even where the episode stopped before
            return torch.full((len(pixels),), 4.0)

        return Decision(decision.env_actions, imagined_error=torch.arange(len(seeds)) + 0.5, gap=gap)


def test_a_plan_is_compared_with_reality_at_its_own_end():
    instances = [instance(10, 12, 0), instance(10, 90, 1)]
    first, second = play(Line(), Dreamer(block=8), instances, protocol=PROTOCOL)
    assert (first.steps, first.final_error, first.executed_error, first.imagined_error) == (2, 0, 4.0, 0.5)
    assert (second.steps, second.final_error) == (10, 70)  # the overhang of the second plan does not count
    assert second.executed_error == 4.0


class Distance(Line):
    """Judged by how far it ends from the goal, not by whether it was there."""

    metric = "distance"

    def pose_error(self, pose, goal_state):
        return float(abs(pose - goal_state)[0])


class Overshooter(Walker):
    """Walks on whatever happens, and thinks that every plan ends at 20."""

    def act(self, observations, goals, *, left, seeds):
        actions = np.full((len(seeds), self.block, 1), self.speed)
        return Decision(actions, imagined_pose=np.full((len(seeds), 1, 1), 20.0))


def test_where_the_distance_counts_an_episode_goes_on_after_success_and_every_plan_is_remembered():
    (episode,) = play(Distance(), Overshooter(block=5), [instance(10, 13)], protocol=PROTOCOL)
    assert episode.success
    assert (episode.steps, episode.errors, episode.final_error, episode.best_error) == (10, [2.0, 7.0], 7.0, 0.0)
    assert episode.imagined_errors == [7.0, 7.0]


def test_steps_that_change_nothing_are_misses():
    (episode,) = play(Distance(), Overshooter(speed=0.0, block=4), [instance(10, 13)], protocol=PROTOCOL)
    assert episode.misses == episode.steps == 10


def test_agents_that_imagine_nothing_cost_no_extra_simulation():
    task = Line()
    play(task, Walker(block=8), [instance(10, 12)], protocol=PROTOCOL)
    assert (task.advances, task.renders) == (2, 2)  # start and goal only


def test_rows_say_what_is_needed_to_believe_them(tmp_path):
    task, seen, rows = run_all(tmp_path / "r.jsonl", Walker(), [instance(10, 13)], model="aaa")
    assert task.closed
    assert seen == [(0, 1), (1, 1)]
    assert rows == [
        {
            "task": "line",
            "model": "m",
            "condition": "original",
            "search": "cem-n3-j1-k1",
            "lambda": None,
            "split": "test",
            "seed": 0,
            "instance": "i0",
            "episode": 0,
            "start_step": 0,
            "draw": 0,
            "solved_at_start": False,
            "success": True,
            "steps": 3,
            "initial_error": 3.0,
            "best_error": 0.0,
            "final_error": 0.0,
            "errors": [],  # it ended before the first model step was over
            "imagined_errors": [],
            "misses": 0,
            "imagined_error": None,
            "executed_error": None,
            "consistency": None,
            "plans": 1,
            "plan_seconds": 1.0,
            "metric": "success",
            "higher_is_better": True,
            "checkpoints": {"model": "aaa"},
            "goal_offset": 5,
            "budget": 10,
            "revision": "abc",
            "versions": {"python": "3"},
        }
    ]


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_a_killed_run_goes_on_where_it_was(tmp_path, batch):
    class Killed(Exception):
        pass

    class Mortal(Walker):
        def act(self, observations, goals, *, left, seeds):
            if len(self.calls) == 3:
                raise Killed
            return super().act(observations, goals, left=left, seeds=seeds)

    instances = [instance(10, 12 + number, number) for number in range(5)]
    _, _, expected = run_all(tmp_path / "whole.jsonl", Walker(), instances, batch=batch)
    path = tmp_path / "parts.jsonl"
    if batch < 8:
        with pytest.raises(Killed):
            run_all(path, Mortal(), instances, batch=batch)
        done = len(read_rows([path]))
        assert 0 < done < 5
    agent = Walker()
    _, seen, rows = run_all(path, agent, instances, batch=batch)
    assert rows == expected
    assert seen[-1] == (5, 5)
    again = Walker()
    run_all(path, again, instances, batch=batch)
    assert not again.calls
