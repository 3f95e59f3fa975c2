"""Collecting: a pure function of the seed, whatever the processes, and nothing half done."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from acid import tasks
from acid.data import Episodes
from acid.errors import DataError, ShapeError
from acid.tasks import collect as collecting
from acid.tasks.collect import Collection, collect, record_episode

SMALL = Collection(episodes=5, size=16, seed=7)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Two episodes a part."""
    monkeypatch.setattr(collecting, "EPISODES_PER_PART", 2)


def columns(path):
    with h5py.File(path) as file:
        return {name: file[name][:] for name in file}


def test_an_episode_is_a_function_of_seed_and_index():
    task = tasks.make("reacher", size=16)
    first, again, other = (record_episode(task, 0, index) for index in (0, 0, 1))
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["action"] != other["action"]).any()
    assert len(first["pixels"]) == task.episode_steps
    task.set_state(first["state"][10])
    assert (task.render() == first["pixels"][10]).all()  # the stored state is the one that is seen
    task.advance(first["action"][10])
    assert (task.get_state() == first["state"][11]).all()
    task.close()


def test_parts_may_come_from_elsewhere(tmp_path):
    class Backwards:
        def map(self, function, items):
            for number in reversed(range(len(items))):
                yield number, function(*items[number])

    told = []
    here = columns(collect(SMALL, tmp_path / "here.h5", processes=1))
    sent = columns(collect(SMALL, tmp_path / "sent.h5", cluster=Backwards(), progress=lambda *p: told.append(p)))
    assert told == [(0, 5), (1, 5), (3, 5), (5, 5)]
    assert all((here[name] == sent[name]).all() for name in here)


@pytest.mark.slow
def test_number_of_processes_and_interruptions_do_not_change_the_data(tmp_path):
    told = []
    one = columns(collect(SMALL, tmp_path / "one.h5", processes=1, progress=lambda *p: told.append(p)))
    assert told[0] == (0, 5)
    assert told[-1] == (5, 5)
    parts = tmp_path / "two.h5.parts"
    parts.mkdir()
    (parts / "0000002.h5.partial").write_bytes(b"half an episode")  # what a killed run leaves behind
    two = columns(collect(SMALL, tmp_path / "two.h5", processes=2))
    assert one.keys() == two.keys()
    assert all((one[name] == two[name]).all() for name in one)
    assert not parts.exists()
    assert len(Episodes(tmp_path / "two.h5")) == 5


@pytest.mark.slow
def test_a_killed_run_leaves_whole_parts_and_no_workers_and_is_continued(tmp_path):
    out = tmp_path / "killed.h5"
    code = (
        "from pathlib import Path; from acid.tasks import collect as c; c.EPISODES_PER_PART = 2\n"
        f"if __name__ == '__main__': c.collect(c.Collection(episodes=40, size=16), Path({str(out)!r}), processes=1)"
    )
    script = tmp_path / "run.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, str(script)])
    parts = tmp_path / "killed.h5.parts"
    wait_for(lambda: len(list(parts.glob("*.h5"))) >= 2 or process.poll() is not None)
    workers = children(process.pid)
    assert workers, "the run ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(map(runs, workers)))  # no orphan goes on
    left = sorted(parts.glob("*.h5"))
    assert not out.exists()
    for part in left:
        assert len(Episodes(part)) == 2
    wanted = Collection(episodes=2 * len(left), size=16)
    (parts / "collection.json").unlink()  # ask for no more than there is, to end the test quickly
    collect(wanted, out, processes=1)
    assert len(Episodes(out)) == wanted.episodes


def wait_for(condition):
    """However busy the machine is: a test that waits for ever is stopped by whoever runs it."""
    while not condition():
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    """Whether a process is there and is more than an entry that nobody has collected yet."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_another_collections_parts_and_existing_files_are_refused(tmp_path):
    out = tmp_path / "data.h5"
    lock = collecting._claim(tmp_path / "data.h5.parts", SMALL)
    with pytest.raises(DataError, match="is being written by another process"):
        collect(SMALL, out)
    lock.close()
    (tmp_path / "data.h5.parts" / "0000000.h5").write_bytes(b"")
    with pytest.raises(DataError, match=r"parts of another collection, '\{.episodes"):
        collect(replace(SMALL, seed=8), out)
    out.write_bytes(b"")
    with pytest.raises(DataError, match="exists already"):
        collect(SMALL, out)
    with pytest.raises(DataError, match="episodes must be at least 1, got 0"):
        Collection(episodes=0)
    for size in (0, 10**6):
        with pytest.raises(ShapeError, match=f"image size must be 8 to 4096 pixels, got {size}"):
            Collection(size=size)


def test_a_collection_that_failed_before_its_first_part_is_in_nobodys_way(tmp_path):
    collecting._claim(tmp_path / "data.h5.parts", replace(SMALL, seed=8)).close()
    assert collect(SMALL, tmp_path / "data.h5", processes=1).is_file()


def test_shrinking_averages_squares():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 3), np.uint8)
    from acid.tasks.offscreen import shrink

    expected = pixels.reshape(4, 2, 3, 2, 3).mean((1, 3)).astype(np.uint8)
    assert (shrink(pixels, 2) == expected).all()
