from __future__ import annotations

import numpy as np
import pytest
from evaluation_fakes import Line, fake_episodes

from acid.errors import AcidError, DataError
from acid.evaluation.protocol import Protocol, draw_instances, halves

HELD_OUT = list(range(3, 23))


def draw(data=None, **options):
    options = {"goal_offset": 5, "episodes": 30} | options
    return draw_instances(data or fake_episodes(30, 20), HELD_OUT, Line(), Protocol(**options))


def test_goals_are_the_offset_ahead_in_the_same_held_out_episode():
    for instance in draw():
        assert instance.episode in HELD_OUT
        assert 0 <= instance.start_step < 20 - 5
        assert instance.goal_row - instance.start_row == 5
        assert instance.start_state.dtype == np.float64
        assert instance.start_state == 1000 * instance.episode + instance.start_step
        assert instance.goal_state - instance.start_state == 5


def test_the_draw_is_a_function_of_task_and_seed_alone():
    ids = [instance.id for instance in draw()]
    assert ids == [instance.id for instance in draw()]
    assert ids != [instance.id for instance in draw(seed=1)]
    assert len(set(ids)) == len(ids)


def test_fewer_instances_are_a_prefix_of_more():
    assert [i.id for i in draw(episodes=12)] == [i.id for i in draw(episodes=30)][:12]


def test_every_episode_is_used_before_any_is_used_twice():
    used = [instance.episode for instance in draw(episodes=10)]
    assert len(set(used)) == 10


@pytest.mark.parametrize("seeds", [(0, 0), (0, 7)])
def test_select_and_test_never_share_an_episode_whatever_the_seeds(seeds):
    select, test = (
        {instance.episode for instance in draw(split=split, seed=seed)}
        for split, seed in zip(("select", "test"), seeds, strict=True)
    )
    assert select.isdisjoint(test)


def test_halves_do_not_depend_on_the_order_of_ids():
    assert halves(HELD_OUT, "line") == halves(HELD_OUT[::-1], "line")


def test_solved_starts_are_dropped_and_counted():
    class MostlySolved(Line):
        def success(self, state, goal_state):
            return state[0] % 3 != 0

    episodes = fake_episodes(30, 20)
    instances = draw_instances(episodes, HELD_OUT, MostlySolved(), Protocol(goal_offset=5, episodes=20))
    assert len(instances) == 20
    assert all(instance.start_state[0] % 3 == 0 for instance in instances)
    assert instances.dropped_solved > 0


def test_ids_tell_different_data_apart():
    other = fake_episodes(30, 20, step=1.5)
    assert {i.id for i in draw()}.isdisjoint(i.id for i in draw(other))


def test_too_few_instances_say_how_many_there_are():
    with pytest.raises(DataError, match=r"1000 instances.*give 150"):
        draw(episodes=1000)


def test_episodes_that_are_too_short_say_so():
    with pytest.raises(DataError, match="longer than 20 steps give 0"):
        draw(goal_offset=20)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"split": "tset"}, "did you mean 'test'"), ({"budget": 0}, "budget"), ({"seed": -1}, "seed")],
)
def test_bad_protocols_are_refused(options, message):
    with pytest.raises(AcidError, match=message):
        Protocol(**options)
