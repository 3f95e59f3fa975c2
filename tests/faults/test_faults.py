"""The short version of `make test-faults`: some damage for every reader and call, some trouble for all work."""

from __future__ import annotations

import pytest

from faults.commands import kill_commands
from faults.fuzz import SUBJECTS, run_batch
from faults.trouble import full_disks, kill, read_only


@pytest.mark.parametrize("subject", SUBJECTS)
def test_damage_is_read_or_refused_with_a_sentence(subject: str) -> None:
    found = run_batch(subject, 1_000_000, 12)
    assert found.inputs >= 12
    assert found.wrong == []


@pytest.mark.slow
def test_killed_work_continues_to_the_same_end() -> None:
    kills, wrong = kill(12)
    assert kills >= 12
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eval", "train"])  # those with workers are killed in test_workers and test_collect
def test_a_command_killed_by_every_signal_continues_to_the_same_end(name: str) -> None:
    kills, wrong = kill_commands(1, (name,))
    assert kills >= 2
    assert wrong == []


@pytest.mark.slow
def test_a_full_disk_is_told_and_nothing_is_left() -> None:
    tried, wrong = full_disks([1_000, 20_000, 60_000], mount=False)
    assert tried >= 18
    assert wrong == []


def test_a_read_only_folder_is_told() -> None:
    tried, wrong = read_only()
    assert tried >= 12
    assert wrong == []


def test_the_harness_notices_what_goes_wrong(monkeypatch) -> None:
    from faults import fuzz

    def raw(draw, folder):
        draw(fuzz.calls.odd)
        raise KeyError("raw")

    def crash(draw, folder):
        fuzz.os.kill(fuzz.os.getpid(), 11)

    monkeypatch.setitem(fuzz.CALLS, "raw", raw)
    monkeypatch.setitem(fuzz.CALLS, "crash", crash)
    assert "KeyError: 'raw'" in run_batch("call raw", 0, 2).wrong[0]
    assert "crash by signal 11" in run_batch("call crash", 0, 2).wrong[0]
