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
    """Serve until SIGTERM or SIGINT; requests under way are then answered first."""
    asyncio.run(_run(server, host, port, ready or (lambda port: None)))


async def _run(server: PolicyServer, host: str, port: int, ready: Callable[[int], None]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await server.run(stop, host=host, port=port, ready=ready)
    except OSError as error:
        raise AcidError(f"the server cannot listen on {host}:{port}: {error.strerror or error}") from error
