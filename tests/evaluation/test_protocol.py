"""Which starts and goals: drawn once, the same for everyone, from episodes that nobody trained on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from evaluation_fakes import Line, PathLine, fake_episodes
from hypothesis import given
from hypothesis import strategies as st

from acid.errors import AcidError, DataError
from acid.evaluation.protocol import Instances, Protocol, draw_instances, halves, plan_seed, starts_in_passes

HELD_OUT = list(range(3, 23))
EPISODES = fake_episodes(30, 20)


def draw(data=None, task=None, **options):
    options = {"goal_offset": 5, "episodes": 30} | options
    return draw_instances(data or EPISODES, HELD_OUT, task or Line(), Protocol(**options))


def test_goals_are_the_offset_ahead_in_the_same_held_out_episode():
    for instance in draw():
        assert instance.episode in HELD_OUT
        assert 0 <= instance.start_step < 20 - 5
        assert instance.start_state.dtype == np.float64
        assert instance.start_state == 1000 * instance.episode + instance.start_step
        assert instance.goal_state - instance.start_state == 5
        assert (instance.context, instance.path) == (None, None)
        np.testing.assert_array_equal(instance.seen, instance.start_state[None])


def test_context_and_path_are_the_states_around_the_start():
    found = draw(task=PathLine(), goal_offset=3)
    assert {instance.start_step for instance in found} <= set(range(1, 20 - 3))
    for instance in found:
        now = instance.start_state
        np.testing.assert_array_equal(instance.seen, [now - 1, now])
        np.testing.assert_array_equal(instance.path, [now + 1, now + 2, now + 3])
        np.testing.assert_array_equal(instance.goal_state, now + 3)
        assert not instance.solved  # a plan is judged by its path, wherever it starts


def test_every_start_is_drawn_once_and_no_more_are_there():
    assert len({i.id for i in draw(task=PathLine(), goal_offset=3, episodes=160)}) == 160  # 10 episodes of 16 starts
    with pytest.raises(DataError, match=r"161 instances were asked for.* 10 unseen 'test' episodes give 160 "):
        draw(task=PathLine(), goal_offset=3, episodes=161)


def test_the_draw_is_a_function_of_task_and_seed_alone():
    ids = [instance.id for instance in draw()]
    assert ids == [instance.id for instance in draw()]
    assert ids != [instance.id for instance in draw(seed=1)]
    assert ids != [instance.id for instance in draw(task=type("Other", (Line,), {"name": "other"})())]
    assert len(set(ids)) == len(ids)


class MostlySolved(Line):
    def success(self, state, goal_state):
        return state[0] % 3 != 0


@pytest.mark.parametrize("task", [Line, MostlySolved])
def test_fewer_instances_are_among_more(task):
    sizes = [3, 8, 20]
    drawn = [draw(task=task(), episodes=n) for n in sizes]
    for few, many in pairwise(drawn):
        assert {i.id for i in few} < {i.id for i in many}
    for n, found in zip(sizes, drawn, strict=True):
        assert [i.id for i in Instances.among(drawn[-1], n)] == [i.id for i in found]
        assert len(found.unsolved) == n


def test_every_episode_is_used_before_any_is_used_twice():
    used = [instance.episode for instance in draw(episodes=10)]
    assert len(set(used)) == 10


@given(st.dictionaries(st.integers(0, 50), st.integers(1, 6), min_size=1, max_size=8), st.integers(0, 99))
def test_passes_use_every_start_once_and_every_episode_in_every_pass(counts, seed):
    found = list(starts_in_passes(counts, np.random.default_rng(seed)))
    assert sorted(found) == sorted((episode, step) for episode, count in counts.items() for step in range(count))
    for number in range(max(counts.values())):
        alive = [episode for episode, count in counts.items() if count > number]
        passed = sum(min(count, number) for count in counts.values())
        assert sorted(episode for episode, _ in found[passed : passed + len(alive)]) == sorted(alive)


@given(st.sets(st.integers(0, 1000), max_size=40), st.integers(0, 99), st.text("abc", min_size=1, max_size=4))
def test_halves_are_disjoint_complete_and_independent_of_order(ids, seed, task):
    found = halves(sorted(ids), task)
    assert set(found["select"]).isdisjoint(found["test"])
    assert set(found["select"]) | set(found["test"]) == ids
    assert 0 <= len(found["test"]) - len(found["select"]) <= 1
    assert halves(np.random.default_rng(seed).permutation(sorted(ids)), task) == found


@pytest.mark.parametrize("seeds", [(0, 0), (0, 7)])
def test_select_and_test_never_share_an_episode_whatever_the_seeds(seeds):
    select, test = (
        {instance.episode for instance in draw(split=split, seed=seed)}
        for split, seed in zip(("select", "test"), seeds, strict=True)
    )
    assert select.isdisjoint(test)


def test_one_draw_serves_the_strict_protocol_and_the_papers():
    instances = draw(task=MostlySolved(), episodes=20)
    assert len(instances.unsolved) == 20
    assert all(i.solved == (i.start_state[0] % 3 != 0) for i in instances)
    assert [i.draw for i in instances if i.draw < 20] == list(range(20))  # the paper's: every one of the first 20
    assert not any(i.solved for i in instances if i.draw >= 20)  # beyond them solved starts serve nobody
    first = [i for i in instances if i.draw < 20]
    assert instances.share_solved == pytest.approx(np.mean([i.solved for i in first]))
    assert list(instances[2:4]) == [instances[2], instances[3]]


def test_ids_tell_different_data_apart():
    assert {i.id for i in draw()}.isdisjoint(i.id for i in draw(fake_episodes(30, 20, step=1.5)))
    paths = [draw(data, PathLine(), goal_offset=3) for data in (EPISODES, fake_episodes(30, 20, step=1.5))]
    assert {i.id for i in paths[0]}.isdisjoint(i.id for i in paths[1])


def test_a_path_is_named_by_all_its_states():
    """Two instances that agree in start and goal, but not in between, are not the same."""
    bent = fake_episodes(30, 20)
    straight = bent.read
    bent.read = lambda column, rows: straight(column, rows) + 0.25 * (np.asarray(rows) % 20 % 3 == 1)[:, None]
    pairs = list(zip(draw(task=PathLine(), goal_offset=3), draw(bent, PathLine(), goal_offset=3), strict=True))
    same = [(a, b) for a, b in pairs if a.start_state == b.start_state and a.goal_state == b.goal_state]
    assert same
    assert all(a.id != b.id for a, b in same)


def test_too_few_instances_say_how_many_there_are():
    with pytest.raises(DataError, match=r"1000 instances.*give 150 \(0 starts are already solved\)"):
        draw(episodes=1000)
    with pytest.raises(DataError, match=r"give 50 \(100 starts are already solved\)"):
        draw(task=MostlySolved(), episodes=1000)
    with pytest.raises(DataError, match="give 0"):
        draw(goal_offset=20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "tset"}, "unknown split 'tset'; did you mean 'test'"),
        ({"budget": 0}, "budget must be at least 1, got 0"),
        ({"goal_offset": 0}, "goal_offset must be at least 1, got 0"),
        ({"episodes": -1}, "episodes must be at least 1, got -1"),
        ({"seed": -1}, "seed must not be negative, got -1"),
    ],
)
def test_bad_protocols_are_refused(options, message):
    with pytest.raises(AcidError, match=message):
        Protocol(**options)


def test_a_tasks_usual_protocol():
    assert Protocol.of(PathLine.setup, episodes=7, split="select", seed=2) == Protocol(3, 3, 2, 7, "select")


def test_a_task_may_draw_goals_of_its_own():
    class Far(Line):
        def draw_goal(self, rng):
            return self.position + rng.uniform(50, 60, 1)

    some, more = (draw(task=Far(), goal_offset=None, episodes=n) for n in (5, 8))
    assert [i.id for i in some] == [i.id for i in more][:5]
    for one in more:
        assert 50 <= float(one.goal_state[0] - one.start_state[0]) <= 60
    assert len({float(i.goal_state[0] - i.start_state[0]) for i in more}) == 8
    assert [i.id for i in more] != [i.id for i in draw(task=Far(), goal_offset=None, episodes=8, seed=1)]


def test_starts_from_which_nothing_can_be_done_are_not_drawn():
    class Even(Line):
        def is_fair_start(self, state):
            return state[0] % 2 == 0

    found = draw(task=Even(), episodes=6)
    assert len(found) == 6
    assert [(i.id, i.draw) for i in found] == [(i.id, i.draw) for i in draw() if i.start_state[0] % 2 == 0][:6]


@given(st.integers(0, 10), st.text("abc", max_size=5), st.integers(0, 10))
def test_plans_have_seeds_of_their_own(seed, name, plan):
    found = plan_seed(seed, name, plan)
    assert found == plan_seed(seed, name, plan)
    assert 0 <= found < 2**32
    assert found not in (plan_seed(seed + 1, name, plan), plan_seed(seed, name + "d", plan), plan_seed(seed, name, 99))


class Published(Line):
    """Whose state is told by other columns too."""

    state_columns = (("state",), ("twice",))

    def recorded_states(self, columns):
        return columns["state"] if "state" in columns else columns["twice"] / 2


class Renamed:
    """Episodes without a column `state`."""

    def __init__(self, name):
        self.name, self.columns, self.path = name, (name,), "their.h5"
        self.lengths, self.offsets = EPISODES.lengths, EPISODES.offsets

    def read(self, name, rows):
        assert name == self.name
        return 2 * EPISODES.read("state", rows)


def test_states_may_be_told_by_other_columns():
    ours, theirs = draw(task=Published()), draw(Renamed("twice"), task=Published())
    assert [instance.id for instance in ours] == [instance.id for instance in theirs]
    with pytest.raises(DataError, match=r"their\.h5 does not tell the states of .*: it has no column state nor twice"):
        draw(Renamed("thrice"), task=Published())
