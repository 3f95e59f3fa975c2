"""The server on the loopback: openpi's protocol, and everything that clients do wrong.

Nothing here guesses how long something takes: tests wait for events, and for closing handshakes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket

import numpy as np
import pytest
from serving_toys import GOAL, TOKEN, Point, ask, observation, serving
from websockets.exceptions import InvalidStatus

from acid.errors import PlanningError
from acid.serving import Trust, pack, unpack


async def http(port: int, path: str, token: str | None = None) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    header = f"Authorization: Api-Key {token}\r\n" if token else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def closed(client) -> tuple[int, str]:
    """The code and the reason with which the server closes a connection."""
    await client.wait_closed()
    return client.close_code, client.close_reason


def test_a_session_of_openpis_client():
    async def main() -> None:
        async with serving() as running, running.client() as client:
            metadata = unpack(await client.recv())
            assert metadata["action_horizon"] == 6
            first = await ask(client, {**observation(0.1), **GOAL, "prompt": "ignored"})
            assert first["actions"].shape == (6, 2)
            assert first["actions"].dtype == np.float32
            assert first["consistency"].shape == (3,)
            assert list(first["server_timing"]) == ["infer_ms"]
            second = await ask(client, observation(0.1))  # the goal stays
            assert list(second["server_timing"]) == ["infer_ms", "prev_total_ms"]
            np.testing.assert_array_equal(first["actions"], second["actions"])
            assert await ask(client, {"goal/state": np.zeros(2, np.float32)}) | {"server_timing": 0} == {
                "goal": True,
                "server_timing": 0,
            }
            assert not np.array_equal((await ask(client, observation(0.1)))["actions"], first["actions"])

    asyncio.run(main())


def test_health_and_metrics():
    async def main() -> None:
        async with serving() as running:
            assert await http(running.port, "/healthz") == (200, "OK\n")
            assert (await http(running.port, "/metrics"))[0] == 401
            async with running.client() as client:
                await client.recv()
                await ask(client, {**observation(), **GOAL})
                status, body = await http(running.port, "/metrics", TOKEN)
                assert status == 200
                assert 'acid_requests_total{result="ok"} 1.0' in body
                assert "acid_connections 1.0" in body
                assert "acid_request_seconds_count 1.0" in body
                assert 'acid_refused_total{reason="token"} 1.0' in body

    asyncio.run(main())


@pytest.mark.parametrize("token", [None, "wrong", TOKEN + "x", TOKEN[:-1]])
def test_a_wrong_token_is_refused_before_anything_is_said(token: str | None):
    async def main() -> None:
        async with serving() as running:
            with pytest.raises(InvalidStatus) as error:
                async with running.client(token):
                    pass
            assert error.value.response.status_code == 401
            assert b"Api-Key TOKEN" in error.value.response.body
            assert TOKEN.encode() not in error.value.response.body

    asyncio.run(main())


def test_too_many_connections_are_refused_until_one_ends():
    async def main() -> None:
        async with serving(connections=1) as running:
            async with running.client() as first:
                await first.recv()
                with pytest.raises(InvalidStatus) as error:
                    async with running.client():
                        pass
                assert error.value.response.status_code == 503
            await running.until(lambda: running.counted("acid_connections") == 0)
            async with running.client() as second:
                await second.recv()

    asyncio.run(main())


def test_mistakes_are_answered_as_text_and_the_connection_stays():
    async def main() -> None:
        async with serving() as running, running.client() as client:
            await client.recv()
            assert "there is no goal yet" in await ask(client, observation())
            await client.send(b"\xc1 not msgpack")
            assert "are not msgpack" in await client.recv()
            await client.send(pack(observation(**GOAL))[:-2])
            assert "are not msgpack" in await client.recv()
            assert "float32 [2]" in await ask(client, {**GOAL, "observation/state": np.zeros(5)})
            assert (await ask(client, {**observation(), **GOAL}))["actions"].shape == (6, 2)
            assert running.counted('acid_requests_total{result="invalid"}') == 4

    asyncio.run(main())


def test_text_is_refused():
    async def main() -> None:
        async with serving() as running, running.client() as client:
            await client.recv()
            await client.send("hello")
            assert "binary frames, not text" in await client.recv()
            assert await closed(client) == (1003, "text is not understood")

    asyncio.run(main())


def test_an_oversized_message_ends_the_connection_and_nothing_else():
    async def main() -> None:
        async with serving(message_bytes=1000) as running, running.client() as other:
            await other.recv()
            async with running.client() as client:
                await client.recv()
                await client.send(b"\0" * 1001)
                assert (await closed(client))[0] == 1009
            assert (await ask(other, {**observation(), **GOAL}))["actions"].shape == (6, 2)

    asyncio.run(main())


def test_a_slow_body_ends_the_connection():
    async def main() -> None:
        async with serving(idle_seconds=0.05) as running, running.client() as client:
            await client.recv()
            client.transport.write(b"\x82\xfe\x10\x00mask")  # the head of a frame of 4096 bytes, and no more
            assert await closed(client) == (1008, "no whole message within 0.05 s")
            await running.until(lambda: running.counted("acid_connections") == 0)

    asyncio.run(main())


def test_a_handshake_that_never_ends_is_ended():
    async def main() -> None:
        async with serving(handshake_seconds=0.05) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(b"GET / HTTP/1.1\r\n")
            await reader.read()  # until the server closes
            writer.close()

    asyncio.run(main())


def test_too_many_requests_are_told_to_wait():
    async def main() -> None:
        async with serving(rate=1e-6, burst=2) as running, running.client() as client:
            await client.recv()
            answers = [await ask(client, {**observation(), **GOAL}) for _ in range(3)]
            assert [isinstance(answer, str) for answer in answers] == [False, False, True]
            assert "too many requests: wait " in answers[2]

    asyncio.run(main())


def test_waiting_requests_are_planned_for_together():
    async def main() -> None:
        model = Point()
        async with serving(model, batch=3) as running:
            model.gate.clear()
            model.begun.clear()
            clients = [await running.client() for _ in range(5)]
            for client in clients:
                await client.recv()
            await clients[0].send(pack({**observation(0.0), **GOAL}))
            await running.until(model.begun.is_set)
            for number, client in enumerate(clients[1:], start=1):
                await client.send(pack({**observation(number / 10), **GOAL}))
            await running.until(lambda: running.counted("acid_waiting") == 4)
            model.gate.set()
            answers = [unpack(await client.recv()) for client in clients]
            assert model.batches[2:] == [1, 1, 3, 3, 1, 1]  # observations and goals; the first two warmed up
            for number, client in enumerate(clients):
                alone = await ask(client, {**observation(number / 10), **GOAL})
                np.testing.assert_allclose(alone["actions"], answers[number]["actions"], atol=1e-6)
                await client.close()

    asyncio.run(main())


def test_a_plan_that_takes_too_long_is_given_up_and_the_connection_stays():
    async def main() -> None:
        model = Point()
        async with serving(model, plan_seconds=0.05) as running, running.client() as client:
            await client.recv()
            model.gate.clear()
            assert await ask(client, {**observation(), **GOAL}) == "no plan within 0.05 s; try again"
            model.gate.set()
            assert running.counted('acid_requests_total{result="late"}') == 1

    asyncio.run(main())


def test_a_client_that_is_killed_leaves_nothing_behind():
    async def main() -> None:
        model = Point()
        async with serving(model) as running:
            gc.collect()
            files, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
            async with running.client() as other:
                await other.recv()
                for _ in range(20):
                    model.gate.clear()
                    model.begun.clear()
                    first, second = await running.client(), await running.client()
                    for client in (first, second):
                        await client.recv()
                    await first.send(pack({**observation(), **GOAL}))
                    await running.until(model.begun.is_set)
                    await second.send(pack({**observation(), **GOAL}))  # waits behind the first
                    await running.until(lambda: running.counted("acid_waiting") == 1)
                    for client in (first, second):
                        client.transport.abort()  # as the system does for a killed process
                    await running.until(lambda: running.counted("acid_connections") == 1)
                    model.gate.set()
                    assert (await ask(other, {**observation(), **GOAL}))["actions"].shape == (6, 2)
                # Observation and goal of: warming up, then 20 times the first and the other. Never the second.
                assert model.batches == [1] * (2 + 20 * 4)
            await running.until(lambda: running.counted("acid_connections") == 0)
            await running.until(lambda: len(asyncio.all_tasks()) <= tasks)
            gc.collect()
            assert len(os.listdir("/proc/self/fd")) <= files

    asyncio.run(main())


def test_garbage_on_the_port_ends_nothing():
    async def main() -> None:
        async with serving() as running:
            for garbage in (b"", b"\0" * 100, b"GET", b"POST / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"\0" * 200):
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(garbage)
                writer.write_eof()
                await reader.read()
                writer.close()
            assert await http(running.port, "/healthz") == (200, "OK\n")

    asyncio.run(main())


def test_a_problem_without_a_plan_is_told_why():
    async def main() -> None:
        model = Point()
        async with serving(model) as running, running.client() as client:
            await client.recv()

            def refuse(latent, actions):
                raise PlanningError("no candidate of problem 0 has a finite cost")

            model.rollout = refuse  # type: ignore[method-assign]
            assert await ask(client, {**observation(), **GOAL}) == "no candidate of problem 0 has a finite cost"
            del model.rollout  # type: ignore[method-assign]
            assert (await ask(client, observation()))["actions"].shape == (6, 2)

    asyncio.run(main())


def test_a_bug_of_the_planner_is_in_the_log_and_not_in_the_answer(caplog):
    async def main() -> None:
        model = Point()
        async with serving(model) as running:
            async with running.client() as client:
                await client.recv()
                model.rollout = lambda latent, actions: 1 / 0  # type: ignore[method-assign]
                answer = await ask(client, {**observation(), **GOAL})
                assert answer == "the planner failed; the server's log says why"
                assert (await closed(client))[0] == 1011
            del model.rollout  # type: ignore[method-assign]
            async with running.client() as client:
                await client.recv()
                assert (await ask(client, {**observation(), **GOAL}))["actions"].shape == (6, 2)

    asyncio.run(main())
    assert "ZeroDivisionError" in caplog.text


def test_plans_not_to_be_trusted_are_flagged_and_counted():
    async def main() -> None:
        trust = Trust("consistency", -1.0, 0.1, 10, 10, 0.5, None, {})
        async with serving(trust=trust) as running, running.client() as client:
            assert unpack(await client.recv())["trust"]["threshold"] == -1
            assert (await ask(client, {**observation(), **GOAL}))["trusted"] is False
            assert running.counted("acid_untrusted_plans_total") == 1

    asyncio.run(main())


def test_a_stop_in_mid_request_answers_first_and_lets_nobody_in():
    async def main() -> None:
        model = Point()
        async with serving(model) as running:
            busy, idle = await running.client(), await running.client()
            for client in (busy, idle):
                await client.recv()
            model.gate.clear()
            model.begun.clear()
            await busy.send(pack({**observation(), **GOAL}))
            await running.until(model.begun.is_set)
            running.stop.set()
            assert await closed(idle) == (1001, "the server is shutting down")
            assert await http(running.port, "/healthz") == (503, "the server is shutting down\n")
            with pytest.raises(InvalidStatus) as error:
                await running.client()
            assert error.value.response.status_code == 503
            model.gate.set()
            assert unpack(await busy.recv())["actions"].shape == (6, 2)
            assert await closed(busy) == (1001, "the server is shutting down")
            await running.ended
            with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", running.port)):
                pass

    asyncio.run(main())


def test_a_plan_that_never_ends_does_not_keep_the_server_up():
    async def main() -> None:
        model = Point()
        async with serving(model, grace_seconds=0.05) as running:
            client = await running.client()
            await client.recv()
            model.gate.clear()
            model.begun.clear()
            await client.send(pack({**observation(), **GOAL}))
            await running.until(model.begun.is_set)
            running.stop.set()
            assert (await closed(client))[0] == 1001
            await running.ended
            model.gate.set()

    asyncio.run(main())


def test_a_planner_that_fails_from_the_start_is_not_served():
    async def main() -> None:
        model = Point()
        model.rollout = lambda latent, actions: actions  # type: ignore[method-assign]
        async with serving(model):
            pass

    with pytest.raises(Exception, match="rollout must return"):
        asyncio.run(main())
