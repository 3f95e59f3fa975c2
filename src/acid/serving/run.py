"""A server from start to end: warm up, open the port, stop on a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from acid.errors import AcidError
from acid.serving.server import PolicyServer


def run_server(
    server: PolicyServer, *, host: str = "127.0.0.1", port: int = 8000, ready: Callable[[int], None] | None = None
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP (unless nohup ignores it); requests under way are then answered first."""
    checked_port(port)
    asyncio.run(_run(server, host, port, ready or (lambda port: None)))


def checked_port(port: int) -> int:
    if not 0 <= port <= 65535:
        raise AcidError(f"a port is a number from 0 (any that is free) to 65535, got {port}")
    return port


async def _run(server: PolicyServer, host: str, port: int, ready: Callable[[int], None]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)
    try:
        await server.run(stop, host=host, port=port, ready=ready)
    except OSError as error:
        raise AcidError(f"the server cannot listen on {host}:{port}: {error.strerror or error}") from error
