"""Instances on disk: what is written is read, and a damaged file says how it is damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evaluation_fakes import Line, PathLine, fake_episodes
from hypothesis import given
from hypothesis import strategies as st

from acid.errors import DataError
from acid.evaluation import Instance, Instances, Protocol, draw_instances, load_instances, save_instances

PROTOCOL = Protocol(goal_offset=3, budget=3, episodes=6)
EXACT = st.floats(allow_nan=False, allow_infinity=False)


@pytest.fixture
def drawn() -> Instances:
    return draw_instances(fake_episodes(20, 12), range(20), PathLine(), PROTOCOL)


@pytest.fixture
def path(drawn: Instances, tmp_path: Path) -> Path:
    path = tmp_path / "new" / "instances-test.jsonl"
    save_instances(path, drawn, PROTOCOL, "pathline")
    return path


def load(path: Path, **changes) -> Instances:
    return load_instances(path, replace(PROTOCOL, **changes), "pathline")


def test_instances_come_back_exactly(path: Path, drawn: Instances) -> None:
    loaded = load(path)
    assert [(i.id, i.episode, i.start_step, i.draw, i.solved) for i in loaded] == [
        (i.id, i.episode, i.start_step, i.draw, i.solved) for i in drawn
    ]
    for a, b in zip(loaded, drawn, strict=True):
        for name in ("start_state", "goal_state", "context", "path", "seen"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert [path.name for path in path.parent.iterdir()] == ["instances-test.jsonl"]  # nothing half written


@given(st.lists(st.tuples(EXACT, EXACT), min_size=1, max_size=5))
def test_states_lose_no_bit(tmp_path_factory: pytest.TempPathFactory, states) -> None:
    path = tmp_path_factory.mktemp("exact") / "i.jsonl"
    found = [Instance(f"i{k}", k, 0, np.array(s), np.array(s[::-1]), k) for k, s in enumerate(states)]
    protocol = Protocol(episodes=len(found))
    save_instances(path, Instances(tuple(found)), protocol, "line")
    for a, b in zip(load_instances(path, protocol, "line"), found, strict=True):
        assert a.start_state.tobytes() == b.start_state.tobytes()
        assert a.context is None


def test_fewer_are_the_first_of_more(path: Path, drawn: Instances) -> None:
    assert [i.id for i in load(path, episodes=4)] == [i.id for i in drawn[:4]]


def test_solved_starts_are_kept_for_the_papers_protocol(tmp_path: Path) -> None:
    class Odd(Line):
        def success(self, state, goal_state):
            return state[0] % 2 == 1

    protocol = Protocol(goal_offset=5, episodes=8)
    drawn = draw_instances(fake_episodes(20, 12), range(20), Odd(), protocol)
    assert any(i.solved for i in drawn)
    save_instances(tmp_path / "i.jsonl", drawn, protocol, "line")
    assert [i.solved for i in load_instances(tmp_path / "i.jsonl", protocol, "line")] == [i.solved for i in drawn]
    head = json.loads((tmp_path / "i.jsonl").read_text().splitlines()[0])
    assert head["share_solved"] == pytest.approx(drawn.share_solved, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "was drawn with seed 0, not 1"),
        ({"split": "select"}, "was drawn with split 'test', not 'select'"),
        ({"goal_offset": 4}, "was drawn with goal_offset 3, not 4"),
        ({"episodes": 7}, "holds fewer than the 7 instances asked for; ask for fewer"),
    ],
)
def test_other_protocols_are_refused(path: Path, changes, message) -> None:
    with pytest.raises(DataError, match=message):
        load(path, **changes)
    assert len(load(path, budget=99)) == 6  # how long they are played is no matter of the draw


def test_the_task_must_be_the_same(path: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="was drawn with task 'pathline', not 'line'"):
        load_instances(path, PROTOCOL, "line")
    with pytest.raises(DataError, match=r"nowhere: there are no instances; pass the dataset to draw them from"):
        load(tmp_path / "nowhere")


def change(line: dict, **values) -> dict:
    return {name: value for name, value in {**line, **values}.items() if value is not ...}


DAMAGES = {
    "unknown": (lambda line: change(line, colour="red"), "unknown entry 'colour'"),
    "missing": (lambda line: change(line, episode=...), "episode must be int, got None"),
    "mistyped": (lambda line: change(line, draw="3"), "draw must be int, got '3'"),
    "bool for int": (lambda line: change(line, draw=True), "draw must be int, got True"),
    "no state": (lambda line: change(line, goal_state=...), "goal_state must be finite numbers"),
    "NaN": (lambda line: change(line, start_state=[float("nan")]), "start_state must be finite numbers"),
    "infinite path": (lambda line: change(line, path=[[float("inf")]] * 3), "path must be finite numbers"),
    "flat path": (lambda line: change(line, path=[1.0, 2.0]), r"path must be finite numbers, got shape \[2\]"),
    "text": (lambda line: change(line, context="here"), "context does not hold numbers"),
    "ragged": (lambda line: change(line, path=[[1.0], [1.0, 2.0]]), "path does not hold numbers"),
    "longer goal": (lambda line: change(line, goal_state=[1.0, 2.0]), "its states have different sizes"),
    "no object": (lambda line: [1, 2], "it is not an object"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_is_named(path: Path, damage: str) -> None:
    harm, message = DAMAGES[damage]
    head, first, second, *others = path.read_text().splitlines()
    path.write_text("\n".join([head, first, json.dumps(harm(json.loads(second))), *others]) + "\n")
    with pytest.raises(DataError, match=f"line 3 of .* is not an instance: {message}.*; draw the file again"):
        load(path)


def test_damaged_files_are_told(path: Path) -> None:
    whole = path.read_text()
    for text, message in (
        (whole[:-9], "is not a file of instances"),  # truncated inside a line
        ("", "is not a file of instances"),
        ("nonsense\n", "line 1 of .* is not valid JSON"),
        ("[1]\n", r"was drawn with task \[1\], not 'pathline'"),
        (whole + whole.splitlines()[-1] + "\n", "holds an instance twice"),
        ("\n".join(whole.splitlines()[:-1]) + "\n", "holds fewer than the 6 instances"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not a file of instances"):
        load(path)


def test_instances_of_different_shapes_are_told(path: Path) -> None:
    head, first, *others = path.read_text().splitlines()
    path.write_text("\n".join([head, json.dumps(change(json.loads(first), context=...)), *others]) + "\n")
    with pytest.raises(DataError, match="holds instances of different shapes; draw it again"):
        load(path)
