"""A point that moves by its action, served on the loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from websockets.asyncio.client import ClientConnection, connect

from acid.planning import CEM, Planner, acid_cost
from acid.serving import Inputs, Limits, PolicyServer, Service, Trust, pack, unpack
from acid.types import ActionScaler

TOKEN = "open sesame"
PATIENT = {"handshake_seconds": 600.0, "rate": 1e6, "burst": 10**6}  # tests may be slow, or fast
INPUTS = Inputs((2,), (2,), "float32", "observation/state", "goal/state")


@dataclass
class Point:
    """Tells when a rollout begins, and goes on only while the gate is open."""

    scaler: ActionScaler = field(default_factory=lambda: ActionScaler((0.0, 0.0), (0.1, 0.1), frameskip=2))
    gate: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    batches: list[int] = field(default_factory=list)  # problems of each search

    def __post_init__(self) -> None:
        self.gate.set()

    def encode(self, observation: Tensor) -> Tensor:
        self.batches.append(len(observation))
        return observation[:, None]

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        self.begun.set()
        self.gate.wait()
        moved = self.scaler.denormalise(actions).unflatten(2, (-1, self.scaler.frameskip)).sum(3)
        return (latent[:, None] + moved.cumsum(2))[..., None, :]


class Verifier:
    def infer(self, latent: Tensor, next_latent: Tensor) -> Tensor:
        return torch.cat([(next_latent - latent)[..., 0, :]] * 2, -1) / 0.2


def service(model: Point | None = None, trust: Trust | None = None) -> Service:
    search = CEM(samples=16, iterations=2, elites=4)
    return Service(Planner(model or Point(), acid_cost(Verifier(), 0.1), search, horizon=3), INPUTS, trust=trust)


def observation(x: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"observation/state": np.array([x, 0.0], np.float32), **more}


GOAL = {"goal/state": np.array([0.5, 0.5], np.float32)}


@dataclass
class Running:
    server: PolicyServer
    port: int
    stop: asyncio.Event
    ended: asyncio.Task[None]

    @property
    def uri(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def client(self, token: str | None = TOKEN) -> connect:
        """As openpi's client connects, but patient: the machine may be busy."""
        headers = {"Authorization": f"Api-Key {token}"} if token else None
        patience = {"open_timeout": None, "ping_interval": None, "close_timeout": None}
        return connect(self.uri, compression=None, max_size=None, additional_headers=headers, **patience)

    def counted(self, name: str) -> float:
        """A number of the metrics page."""
        (line,) = (line for line in self.server.metrics.text().splitlines() if line.startswith(name + " "))
        return float(line.split()[-1])

    async def until(self, condition: Any) -> None:
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(model: Point | None = None, trust: Trust | None = None, **limits: Any) -> AsyncIterator[Running]:
    """A server that is up, and that must have ended by itself or ends when it is stopped."""
    opened: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    server = PolicyServer(service(model, trust), token=TOKEN, limits=Limits(**{**PATIENT, **limits}))
    task = asyncio.ensure_future(server.run(stop, port=0, ready=opened.set_result))
    await asyncio.wait({opened, task}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield Running(server, opened.result(), stop, task)
    finally:
        stop.set()
        await task


async def ask(client: ClientConnection, message: Any) -> Any:
    """A message's answer; a text if it is an error."""
    await client.send(pack(message))
    answer = await client.recv()
    return answer if isinstance(answer, str) else unpack(answer)
