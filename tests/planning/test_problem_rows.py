"""Which problems are still searched, and what is done with their rows."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acid.planning import Rows

sizes = st.integers(1, 6)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), size=sizes)
def test_rows_are_narrowed_again_and_again(data: st.DataObject, size: int) -> None:
    values, rows, expected = torch.arange(size * 2.0).reshape(size, 2), Rows.all(size), list(range(size))
    while expected:
        keep = data.draw(st.lists(st.booleans(), min_size=len(expected), max_size=len(expected)))
        rows = rows.where(torch.tensor(keep))
        expected = [row for row, kept in zip(expected, keep, strict=True) if kept]
        assert list(rows.numbers) == expected
        assert len(rows) == len(expected)
        assert torch.equal(rows.take(values), values[expected])
        changed = rows.put(values, -rows.take(values))
        assert torch.equal(changed[expected], -values[expected])
        others = [row for row in range(size) if row not in expected]
        assert torch.equal(changed[others], values[others])
        if all(keep):
            break


def test_nothing_is_copied_while_all_problems_are_searched() -> None:
    values, new = torch.zeros(3, 2), torch.ones(3, 2)
    rows = Rows.all(3)
    assert rows.take(values) is values
    assert rows.put(values, new) is new
    assert rows.where(torch.ones(3, dtype=torch.bool)) is rows
