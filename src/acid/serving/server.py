"""A policy server that speaks openpi's websocket protocol, so that robot clients written for it work.

The server sends its metadata first, then one answer per observation, all as msgpack in binary frames. Errors come as
text frames: after one that the client can mend, the connection stays open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import numpy as np
import torch
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request as Handshake
from websockets.http11 import Response

from acid.errors import AcidError
from acid.serving.limits import Buckets, Limits, allowed
from acid.serving.messages import MessageError, pack, unpack
from acid.serving.metrics import Metrics
from acid.serving.service import Service, Session
from acid.serving.worker import Worker

log = logging.getLogger("acid.serving")
CLOSE_SECONDS = 2.0  # that a client has to agree to the end of a connection
STOPPING = "the server is shutting down"
FULL = "all connections are in use; try again later"


class PolicyServer:
    """Serves one planner to many clients.

    token: what clients must name in the header `Authorization: Api-Key TOKEN`; None lets everyone in.
    goal: for clients that never send one.
    threads: that one plan may use; None leaves it to torch.
    """

    def __init__(
        self,
        service: Service,
        *,
        token: str | None,
        limits: Limits | None = None,
        goal: np.ndarray | None = None,
        threads: int | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._service = service
        self._token = token
        self._goal = goal
        self._metadata = pack(service.metadata)
        self._buckets = Buckets(self.limits)
        self._worker = Worker(self._answer, self.limits.batch, begin=lambda: _use_threads(threads))
        self._handlers: set[asyncio.Task[Any]] = set()
        self.metrics = Metrics(connections=lambda: len(self._handlers), waiting=lambda: self._worker.waiting)

    async def run(
        self, stop: asyncio.Event, *, host: str = "127.0.0.1", port: int = 8000, ready: Callable[[int], None]
    ) -> None:
        """Serve until `stop` is set, then let requests under way finish.

        The port is closed until the first plan was made, for nothing: clients of openpi try again until it opens.
        `ready` is told its number.
        """
        self._stop, limits = stop, self.limits
        await asyncio.wrap_future(self._worker.submit(self._service.blank()))
        server = await serve(
            self._handle,
            host,
            port,
            process_request=self._receive,
            compression=None,
            max_size=limits.message_bytes,
            max_queue=1,
            open_timeout=limits.handshake_seconds,
            close_timeout=CLOSE_SECONDS,
            logger=logging.getLogger("acid.serving.websockets"),
        )
        try:
            ready(next(iter(server.sockets)).getsockname()[1])
            await stop.wait()
            if self._handlers:
                log.info("stopping: %d connections are open", len(self._handlers))
                await asyncio.wait(self._handlers, timeout=limits.grace_seconds)
        finally:
            server.close()
            await server.wait_closed()
            self._worker.stop()

    def _answer(self, requests: Any) -> list[dict[str, Any]]:
        self.metrics.batches.inc()
        return self._service.answer(requests)

    def _receive(self, connection: ServerConnection, handshake: Handshake) -> Response | None:
        """Answer what is not a websocket, and refuse who may not come in."""
        if handshake.path == "/healthz":
            stopping = self._stop.is_set()
            status = HTTPStatus.SERVICE_UNAVAILABLE if stopping else HTTPStatus.OK
            return connection.respond(status, f"{STOPPING}\n" if stopping else "OK\n")
        if not allowed(self._token, handshake.headers.get("Authorization")):
            self.metrics.refused.labels("token").inc()
            return connection.respond(
                HTTPStatus.UNAUTHORIZED, "the token is missing or wrong: send the header Authorization: Api-Key TOKEN\n"
            )
        if handshake.path == "/metrics":
            return connection.respond(HTTPStatus.OK, self.metrics.text())
        if self._stop.is_set():
            self.metrics.refused.labels("stopping").inc()
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"{STOPPING}\n")
        if self._full:
            self.metrics.refused.labels("connections").inc()
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"{FULL}\n")
        return None

    @property
    def _full(self) -> bool:
        return len(self._handlers) >= self.limits.connections

    async def _handle(self, connection: ServerConnection) -> None:
        if self._full:  # several handshakes were under way
            self.metrics.refused.labels("connections").inc()
            await connection.close(CloseCode.TRY_AGAIN_LATER, FULL)
            return
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            await self._converse(connection)
        except ConnectionClosed:
            pass  # a client may leave at any time
        finally:
            self._handlers.discard(task)

    async def _converse(self, connection: ServerConnection) -> None:
        session, previous = Session(self._service.inputs, self._goal), None
        await connection.send(self._metadata)
        while True:
            message = await self._next(connection)
            if message is None:
                return
            began = time.monotonic()
            wait = self._buckets.take(str(connection.remote_address[0]))
            if wait:
                await self._refuse(connection, "limited", f"too many requests: wait {wait:.2f} s before the next one")
                continue
            try:
                request = session.request(unpack(message))
            except MessageError as error:
                await self._refuse(connection, "invalid", str(error))
                continue
            if request is None:
                answer: dict[str, Any] | None = {"goal": True}
            else:
                answer = await self._plan(connection, request)
            if answer is None:
                continue
            answer["server_timing"] = {"infer_ms": (time.monotonic() - began) * 1000}
            if previous is not None:
                answer["server_timing"]["prev_total_ms"] = previous * 1000
            await connection.send(pack(answer))
            previous = time.monotonic() - began
            self.metrics.requests.labels("ok").inc()
            self.metrics.seconds.observe(previous)

    async def _next(self, connection: ServerConnection) -> bytes | None:
        """The next message; None if the connection was closed because none came in time, or because of a stop."""
        received, stopped = asyncio.ensure_future(connection.recv()), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(
                {received, stopped}, timeout=self.limits.idle_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopped.cancel()
            if not received.done():
                received.cancel()
        if received.done() and not received.cancelled():
            message = received.result()
            if isinstance(message, bytes):
                return message
            await self._refuse(connection, "invalid", "observations are msgpack in binary frames, not text")
            await connection.close(CloseCode.UNSUPPORTED_DATA, "text is not understood")
        elif self._stop.is_set():
            await connection.close(CloseCode.GOING_AWAY, STOPPING)
        else:
            reason = f"no whole message within {self.limits.idle_seconds:g} s"
            await self._refuse(connection, "idle", reason)
            await connection.close(CloseCode.POLICY_VIOLATION, reason)
        return None

    async def _plan(self, connection: ServerConnection, request: Any) -> dict[str, Any] | None:
        """The answer; None if there is none and the client knows why, or is gone."""
        submitted = self._worker.submit(request)
        planned = asyncio.wrap_future(submitted)
        gone = asyncio.ensure_future(connection.wait_closed())
        try:
            await asyncio.wait({planned, gone}, timeout=self.limits.plan_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not planned.done():
                result = "abandoned" if gone.done() else "late"
                await self._refuse(connection, result, f"no plan within {self.limits.plan_seconds:g} s; try again")
                return None
            answer = planned.result()
        except AcidError as error:
            await self._refuse(connection, "failed", str(error))
            return None
        except ConnectionClosed:
            raise
        except Exception:
            log.exception("a plan failed")
            await self._refuse(connection, "failed", "the planner failed; the server's log says why")
            await connection.close(CloseCode.INTERNAL_ERROR, "the planner failed")
            return None
        finally:
            submitted.cancel()  # if it still waits
            gone.cancel()
        if answer["trusted"] is False:
            self.metrics.untrusted.inc()
        return answer

    async def _refuse(self, connection: ServerConnection, result: str, reason: str) -> None:
        self.metrics.requests.labels(result).inc()
        await connection.send(reason)


def _use_threads(count: int | None) -> None:
    if count is not None:
        torch.set_num_threads(count)  # of the thread that calls it
