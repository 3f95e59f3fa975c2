"""Requests a second and latencies of the policy server on the loopback, by how many clients ask at once.

Two services: one that plans with the shipped Le-WM of Reacher, and one whose planner does nothing, which shows what the
server itself costs. The number of requests is fixed, so the time is bounded by the machine alone.

    python benchmarks/serving.py [--requests 40] [--clients 1 2 4 8] [--samples 30] [--iterations 5]
"""

from __future__ import annotations

import argparse
import asyncio
import time

import numpy as np
from websockets.asyncio.client import connect

from acid.evaluation import Cell, SearchSpec
from acid.serving import Inputs, Limits, PolicyServer, Service, pack, unpack
from acid.serving.cells import Offer
from acid.serving.service import Request


class Nothing(Service):
    """Answers at once, with actions of the usual size."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    @property
    def metadata(self) -> dict:
        return {"server": "acid"}

    def blank(self) -> Request:
        return Request(np.zeros(self.inputs.observation, np.uint8), np.zeros(self.inputs.goal, np.uint8))

    def answer(self, requests):
        return [{"actions": np.zeros((25, 2), np.float32), "trusted": None} for _ in requests]


async def client(port: int, requests: int, inputs: Inputs, seconds: list[float], seed: int) -> None:
    random = np.random.default_rng(seed)
    goal = random.integers(0, 256, inputs.goal, np.uint8)
    async with connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None, ping_interval=None) as connection:
        await connection.recv()
        await connection.send(pack({inputs.goal_key: goal}))
        await connection.recv()
        for _ in range(requests):
            image = random.integers(0, 256, inputs.observation, np.uint8)
            began = time.perf_counter()
            await connection.send(pack({inputs.observation_key: image}))
            answer = await connection.recv()
            seconds.append(time.perf_counter() - began)
            if isinstance(answer, str):
                raise SystemExit(f"the server answered: {answer}")
            unpack(answer)


async def measure(service: Service, clients: int, requests: int) -> tuple[float, np.ndarray, float, float]:
    """Requests a second, latencies, CPU seconds a request (the client's included), and requests per batch."""
    stop, opened = asyncio.Event(), asyncio.get_running_loop().create_future()
    limits = Limits(connections=clients, rate=1e6, burst=10**6)
    server = PolicyServer(service, token=None, limits=limits, threads=1)
    running = asyncio.ensure_future(server.run(stop, port=0, ready=opened.set_result))
    port, seconds = await opened, []
    began, worked = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client(port, requests // clients, service.inputs, seconds, seed) for seed in range(clients)))
    took, worked = time.perf_counter() - began, time.process_time() - worked
    stop.set()
    await running
    batches = next(
        float(x.split()[-1]) for x in server.metrics.text().splitlines() if x.startswith("acid_batches_total ")
    )
    together = len(seconds) / (batches - 1)  # one batch warmed up
    return len(seconds) / took, np.array(seconds), worked / len(seconds), together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--iterations", type=int, default=5)
    given = parser.parse_args()
    cell = Cell("reacher", "lewm")
    sizes = {"samples": given.samples, "iterations": given.iterations, "elites": max(1, given.samples // 10)}
    offer = Offer.usual(cell, "acid", None, SearchSpec.usual(cell.task_class.setup, **sizes))
    planning = offer.service(offer.bench(), None)
    print("| service | clients | requests | requests/s | p50 ms | p95 ms | p99 ms | CPU ms/request | requests/batch |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, service in ((f"Reacher, {offer.spec.label}", planning), ("no planning", Nothing(planning.inputs))):
        for clients in given.clients:
            rate, seconds, cpu, together = asyncio.run(measure(service, clients, max(clients, given.requests)))
            p50, p95, p99 = np.percentile(1000 * seconds, (50, 95, 99))
            print(
                f"| {name} | {clients} | {len(seconds)} | {rate:.1f} | {p50:.1f} | {p95:.1f} | {p99:.1f} | "
                f"{1000 * cpu:.1f} | {together:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
