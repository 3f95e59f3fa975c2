"""Workers end with the process that started them, whatever happens to it, and never in silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from acid.errors import AcidError, DataError
from acid.workers import alone_in, worker_pool

PATIENCE = 120.0  # seconds; far more than is needed, also on a busy machine


def tell_and_sleep(path: Path) -> None:
    path.write_text(str(os.getpid()))
    time.sleep(600)


def die(path: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def complain(path: Path) -> None:
    raise DataError(f"{path} is no good")


def wait_for(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def heed_signals() -> None:
    """In a child of a process that `nohup` or a shell in the background started, which ignores some."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def started(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A process with a worker that works for ten minutes, and the worker's id."""
    code = (
        "from pathlib import Path; import test_workers as t\n"
        "if __name__ == '__main__':\n"
        f"    with t.worker_pool(1) as pool: pool.submit(t.tell_and_sleep, Path({str(folder / 'pid')!r})).result()"
    )
    (folder / "main.py").write_text(code)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, str(folder / "main.py")], stderr=subprocess.PIPE, text=True, env=env, start_new_session=True,
        preexec_fn=heed_signals,
    )  # fmt: skip
    wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text())
    return process, int((folder / "pid").read_text())


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_workers_of_a_killed_process_end(kind: signal.Signals, tmp_path: Path):
    process, worker = started(tmp_path)
    process.send_signal(kind)
    process.communicate()
    wait_for(lambda: not alive(worker))


def test_ctrl_c_ends_the_workers_at_once_and_without_their_tracebacks(tmp_path: Path):
    process, worker = started(tmp_path)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, said = process.communicate(timeout=PATIENCE)
    wait_for(lambda: not alive(worker))
    assert said.count("Traceback") == 1  # that of this program, which does not catch it
    assert "SpawnProcess" not in said


def work(function, folder: Path, *, beside=None) -> None:
    with worker_pool(2) as pool:
        if beside is not None:
            pool.submit(beside, folder / "pid")
            wait_for(lambda: (folder / "pid").exists())
        pool.submit(function, folder).result()


def test_a_killed_worker_is_told_in_one_sentence(tmp_path: Path):
    with pytest.raises(AcidError, match="a worker process was killed, perhaps because memory ran out"):
        work(die, tmp_path)


def test_an_error_in_a_worker_is_the_same_error_here_and_ends_the_others(tmp_path: Path):
    with pytest.raises(DataError, match="is no good"):
        work(complain, tmp_path, beside=tell_and_sleep)


def test_only_one_may_work_in_a_folder(tmp_path: Path):
    def work_there() -> None:
        with alone_in(tmp_path / "run"):
            pass

    with (
        alone_in(tmp_path / "run"),
        pytest.raises(AcidError, match=r"run is being written by another process: wait for it or stop it"),
    ):
        work_there()
    work_there()
    (tmp_path / "file").write_text("")
    with pytest.raises(AcidError, match=r"cannot write .*file/run"), alone_in(tmp_path / "file" / "run"):
        pass
