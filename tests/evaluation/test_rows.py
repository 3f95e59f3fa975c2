from __future__ import annotations

import json

import pytest

from acid.errors import AcidError, DataError
from acid.evaluation.rows import RowFile, key, read_rows

SAME = {"checkpoints": {"model": "aaa"}, "goal_offset": 25, "budget": 50}


def row(number: int, **changes):
    identity = {"task": "line", "model": "m", "condition": "acid", "search": "cem-n3-j1-k1", "lambda": 0.07}
    return {**identity, "split": "test", "seed": 0, "instance": f"i{number}", **SAME, "value": number, **changes}


def test_rows_come_back_and_are_known_after_reopening(tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    with RowFile(path, SAME) as rows:
        rows.append([row(0), row(1)])
    with RowFile(path, SAME) as rows:
        assert key(row(1)) in rows
        assert key(row(2)) not in rows
        rows.append([row(2)])
    assert read_rows([path]) == [row(0), row(1), row(2)]


@pytest.mark.parametrize("keep", [1, 20, -1])
def test_a_half_written_last_line_is_dropped_and_rewritten(tmp_path, keep):
    path = tmp_path / "rows.jsonl"
    with RowFile(path, SAME) as rows:
        rows.append([row(0), row(1)])
    whole = path.read_bytes()
    second = whole.index(b"\n") + 1
    path.write_bytes(whole[:second] + whole[second:][:keep])
    assert read_rows([path]) == [row(0)]
    with RowFile(path, SAME) as rows:
        assert key(row(1)) not in rows
        rows.append([row(1)])
    assert path.read_bytes() == whole


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(row(0))}\nnonsense\n{json.dumps(row(1))}\n")
    with pytest.raises(DataError, match="line 2"):
        read_rows([path])


@pytest.mark.parametrize("changes", [{"checkpoints": {"model": "bbb"}}, {"budget": 60}])
def test_rows_of_other_checkpoints_or_rules_are_refused(tmp_path, changes):
    path = tmp_path / "rows.jsonl"
    with RowFile(path, SAME) as rows:
        rows.append([row(0)])
        with pytest.raises(DataError, match="--fresh"):
            rows.append([row(1, **changes)])
    with pytest.raises(DataError, match=f"{next(iter(changes))}.*move the file away, or pass --fresh"):
        RowFile(path, SAME | changes)
    assert read_rows([path]) == [row(0)]
    with RowFile(path, SAME | changes, fresh=True) as rows:
        assert len(rows) == 0


def test_two_writers_of_one_file_are_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    with RowFile(path, SAME), pytest.raises(AcidError, match="another process"):
        RowFile(path, SAME, fresh=True)
    RowFile(path, SAME).close()


def test_numbers_that_json_cannot_hold_are_refused_before_writing(tmp_path):
    path = tmp_path / "rows.jsonl"
    with RowFile(path, SAME) as rows, pytest.raises(DataError, match="i1"):
        rows.append([row(0), row(1, value=float("nan"))])
    assert path.read_bytes() == b""
