"""What goes wrong in a process that reads batches is told in one sentence."""

from __future__ import annotations

import os
import signal

import pytest

from acid.data import read_ahead
from acid.errors import DataError


def refuse(step: int) -> int:
    if step == 2:
        raise DataError("episode 7 is damaged")
    return step


def die(step: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return step


def test_an_error_of_ours_arrives_as_it_is():
    stream = read_ahead(refuse, workers=1)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(DataError) as refused:
        next(stream)
    assert str(refused.value) == "episode 7 is damaged"


def test_a_killed_reader_is_told():
    with pytest.raises(DataError, match=r"a process that reads batches was killed, .* use fewer --workers"):
        next(read_ahead(die, workers=1))
