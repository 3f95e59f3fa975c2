"""Rows are typed, survive being killed, and are refused with a reason if they are not what they should be."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from fake_rows import SAME, SPEC, row
from hypothesis import given
from hypothesis import strategies as st

from acid.errors import AcidError, DataError
from acid.evaluation import Row, RowFile, SearchSpec, read_rows

NUMBER = st.floats(allow_nan=False, allow_infinity=False)
FULL = row(
    errors=(0.5, 0.25),
    imagined_errors=(0.1,),
    missed_steps=2,
    metrics={"ate_m": 0.5},
    best_error=0.125,
    plans=3,
    plan_cpu_seconds=0.5,
    plan_wall_seconds=0.25,
    plan_goal_cost=1.5,
    plan_gap=2.5,
    plan_consistency=0.75,
    plan=((0.5, 1.5), (2.5, 3.5)),
    pool={"rank_goal": -0.5},
    versions={"python": "3"},
    search=SearchSpec("cem", 8, 1, 2, candidates="arc", repeats=3, options={"tolerance": 0.1}),
)


def test_a_row_comes_back_with_its_types():
    assert all(getattr(FULL, field.name) not in (None, {}, ()) for field in fields(Row))  # the test misses nothing
    again = Row.from_json(json.loads(json.dumps(FULL.to_json())))
    assert again == FULL
    assert isinstance(again.search, SearchSpec)
    assert isinstance(again.errors, tuple)


@given(
    st.lists(NUMBER, max_size=4),
    st.dictionaries(st.text("abλ_ 1", max_size=3), NUMBER, max_size=3),
    NUMBER,
    st.booleans(),
)
def test_numbers_lose_no_bit(errors, metrics, final, success):
    made = row(errors=tuple(errors), metrics=metrics, final_error=final, success=success, search=None, lam=None)
    assert Row.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_what_is_unknown_takes_no_room():
    kept = row().to_json()
    assert not {"errors", "plan", "metrics", "best_error", "pool", "plans"} & kept.keys()
    assert kept["schema"] == 2
    assert {"search", "lam"} <= row(search=None, lam=None).to_json().keys()  # part of what a row is called


def test_numbers_are_found_by_name():
    made = row(metrics={"ate_m": 1.5, "final_error": 9.0}, success=True, missed_steps=None)
    assert (made.value("ate_m"), made.value("success"), made.value("steps")) == (1.5, 1.0, 7.0)
    assert made.value("final_error") == 9.0  # what the task measures comes first
    assert made.value("missed_steps") is made.value("nonsense") is made.value("instance") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 1}, "its schema is 1, this version reads 2: run it again"),
        ({"schema": ...}, "its schema is None"),
        ({"sucess": True}, "unknown entry 'sucess'; did you mean 'success'"),
        ({"instance": ...}, "it lacks 'instance'"),
        ({"steps": "7"}, "steps must be int, got '7'"),
        ({"steps": True}, "steps must be int, got True"),
        ({"success": 1}, "success must be bool, got 1"),
        ({"lam": "0.07"}, "lam must be int or float or NoneType, got '0.07'"),
        ({"final_error": math.nan}, "final_error holds something that is not a finite number"),
        ({"initial_error": math.inf}, "initial_error holds something that is not a finite number"),
        ({"errors": [1.0, math.nan]}, "errors holds something that is not a finite number"),
        ({"errors": ["1"]}, "errors holds something that is not a finite number"),
        ({"metrics": {"ate_m": None}}, "metrics holds something that is not a finite number"),
        ({"pool": {"rank_goal": math.nan}}, "pool holds something that is not a finite number"),
        ({"plan": [[1.0, math.nan]]}, "plan holds something that is not a finite number"),
        ({"plan": [1.0, 2.0]}, "plan holds something that is not a finite number"),
        ({"checkpoints": {"model": 3}}, "checkpoints holds something that is not a text"),
        ({"task": "../../evil"}, "the task '../../evil' cannot be part of a file's name"),
        ({"model": "a/b"}, "the model 'a/b' cannot be part of a file's name"),
        ({"instance": "\x1b[2J"}, r"the instance '.x1b\[2J' cannot be part of a file's name"),
        ({"error_unit": "\x1b[2J"}, "error_unit holds characters that cannot be printed"),
        ({"metrics": {"\x1b[2J": 1.0}}, "metrics holds characters that cannot be printed"),
        ({"search": {"method": "../x", "samples": 3}}, "the search '../x-n3-j1-h5' cannot be part of a file's name"),
        ({"lam": -1.0}, "lam must not be negative, got -1.0"),
        ({"steps": -3}, "steps must not be negative, got -3"),
        ({"plan_cpu_seconds": math.inf}, "plan_cpu_seconds holds something that is not a finite number"),
        ({"search": "cem-n3"}, "search must be dict or NoneType, got 'cem-n3'"),
        ({"search": {"method": "cem", "samples": 3, "size": 1}}, "search is not understood"),
        ({"search": {"method": "cem"}}, "search is not understood"),
        ({"search": {"method": "cem", "samples": "3"}}, "search is not understood"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, changes: dict[str, Any], message: str):
    content = {name: value for name, value in {**row().to_json(), **changes}.items() if value is not ...}
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(row().to_json())}\n{json.dumps(content)}\n")
    with pytest.raises(DataError, match=f"line 2 is not a result row \\({message}.*; remove the line or file"):
        read_rows([path])


def test_entries_that_may_be_unknown_may_be_null():
    content = row().to_json() | dict.fromkeys(("search", "lam", "plan", "best_error", "plan_gap", "missed_steps"))
    assert Row.from_json(content) == row(search=None, lam=None)


def test_rows_come_back_and_are_known_after_reopening(tmp_path: Path):
    path = tmp_path / "deep" / "rows.jsonl"
    with RowFile(path, SAME) as rows:
        rows.append([row(0), row(1)])
    with RowFile(path, SAME) as rows:
        assert (row(1).key in rows, row(2).key in rows, len(rows)) == (True, False, 2)
        rows.append([row(2)])
    assert read_rows([path]) == [row(0), row(1), row(2)]


def test_options_of_a_search_are_known_after_reopening(tmp_path: Path):
    """JSON has no tuples, but a row that was kept is still the row that was played."""
    from acid.planning import CEM

    made = row(search=SearchSpec.of(CEM(8, 2, 2, std_init=(0.5, 1.0)), horizon=3))
    with RowFile(tmp_path / "rows.jsonl", SAME) as rows:
        rows.append([made])
    with RowFile(tmp_path / "rows.jsonl", SAME) as rows:
        assert made.key in rows


@pytest.mark.parametrize("changes", [{"seed": 1}, {"lam": 0.2}, {"search": None}, {"split": "select"}, {"model": "n"}])
def test_rows_that_differ_in_what_they_are_called_are_others(changes):
    assert row(**changes).key != row().key
    assert (row(**changes).pair == row().pair) == ("seed" not in changes)


@pytest.mark.parametrize("keep", [1, 20, -1])
def test_a_half_written_last_line_is_dropped_and_rewritten(tmp_path: Path, keep: int):
    path = tmp_path / "rows.jsonl"
    with RowFile(path, SAME) as rows:
        rows.append([row(0), row(1)])
    whole = path.read_bytes()
    second = whole.index(b"\n") + 1
    path.write_bytes(whole[:second] + whole[second:][:keep])
    assert read_rows([path]) == [row(0)]
    with RowFile(path, SAME) as rows:
        assert row(1).key not in rows
        rows.append([row(1)])
    assert path.read_bytes() == whole


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    line = json.dumps(row(0).to_json())
    path.write_text(f"{line}\nnonsense\n{line}\n")
    with pytest.raises(DataError, match="line 2"):
        read_rows([path])


@pytest.mark.parametrize(
    "changes", [{"checkpoints": {"model": "bbb"}}, {"budget_steps": 60}, {"precision": "bfloat16"}]
)
def test_rows_of_other_checkpoints_or_rules_are_refused(tmp_path: Path, changes):
    path = tmp_path / "rows.jsonl"
    with RowFile(path, SAME) as rows:
        rows.append([row(0)])
        with pytest.raises(DataError, match="--fresh"):
            rows.append([row(1, **changes)])
    with pytest.raises(DataError, match=f"{next(iter(changes))}.*replace it by `acid eval --fresh`"):
        RowFile(path, SAME | changes)
    assert read_rows([path]) == [row(0)]
    with RowFile(path, SAME | changes, fresh=True) as rows:
        assert len(rows) == 0


def test_two_writers_of_one_file_are_refused(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    with RowFile(path, SAME) as rows:
        rows.append([row(0)])
        with pytest.raises(AcidError, match="another process"):
            RowFile(path, SAME, fresh=True)
    with RowFile(path, SAME) as rows:
        assert len(rows) == 1  # the second writer has thrown nothing away


def test_numbers_that_json_cannot_hold_are_refused_before_writing(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    with RowFile(path, SAME) as rows, pytest.raises(DataError, match="'i1' cannot be written: final_error holds"):
        rows.append([row(0), row(1, final_error=math.nan)])
    assert path.read_bytes() == b""


def test_the_search_is_part_of_a_row_as_a_value():
    assert row().search is SPEC
    assert row().group == ("line", "m", "acid", SearchSpec("cem", 300, 30, 30), 0.07, "test")
