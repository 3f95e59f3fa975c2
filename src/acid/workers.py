"""Processes that work for this one, and locks against a second one at the same work."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from pathlib import Path

from acid.errors import AcidError
from acid.files import claim, writing


@contextlib.contextmanager
def worker_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that leave Ctrl-C to this one, and end at once when it ends, however it does, or the block fails."""
    spawn = multiprocessing.get_context("spawn")
    life, ours = spawn.Pipe(duplex=False)  # workers hold the one end; the other closes with us, even if we are killed
    try:
        with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_serve, initargs=(life,)) as pool:
            try:
                yield pool
            except BaseException:
                ours.close()  # so that the pool need not wait for what is under way
                pool.shutdown(cancel_futures=True)
                raise
    except (BrokenProcessPool, CancelledError) as error:
        raise AcidError(
            "a worker process was killed, perhaps because memory ran out: use fewer processes. "
            "The same command continues with what is missing"
        ) from error
    finally:
        ours.close()
        life.close()


def _serve(life: Connection) -> None:
    """In a worker: ignore Ctrl-C, and end as soon as the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            life.recv_bytes()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system releases however this process ends; an AcidError if another has it."""
    with writing(folder, AcidError):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    with lock:
        claim(lock.fileno(), folder, AcidError)
        yield
