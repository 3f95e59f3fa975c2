"""`acid serve` and `acid calibrate`: plan for robots over a network."""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from acid.cli.options import Cells, Compute, On, Search, SearchOptions, Where
from acid.cli.progress import bar
from acid.errors import AcidError

if TYPE_CHECKING:
    import numpy as np

    from acid.serving.cells import Offer

TOKEN = "ACID_TOKEN"  # of the environment


@dataclass(frozen=True)
class Bounds:
    """Limits of one server."""

    connections: int = 16
    """Open connections at a time."""
    message_mib: float = 4.0
    """The largest observation, in MiB."""
    rate: float = 20.0
    """Requests a second from one address on average; for a moment there may be twice as many."""
    batch: int = 8
    """Requests that wait are planned together, at most this many."""
    idle_seconds: float = 600.0
    """A connection is closed after so many seconds without a whole message."""
    plan_seconds: float = 60.0
    """A request that has no plan after so many seconds gets an error."""
    grace_seconds: float = 30.0
    """When the server is told to stop, requests in progress get so many seconds to finish."""


@dataclass(frozen=True)
class Planned:
    """Which planner."""

    condition: str = "acid"
    """acid, original, control, clipped, acid-clipped, proposal or proposal-acid."""
    lam: float | None = None
    """λ of a condition that has one; default: the one that was chosen."""
    search: Search = field(default_factory=SearchOptions)

    def offer(self, where: Where, compute: Compute) -> Offer:
        from acid.serving.cells import Offer

        cell = where.cell()
        return Offer.usual(cell, self.condition, self.lam, self.search.spec(cell), **compute.options())


@dataclass(frozen=True)
class Serve:
    """Serve a cell's planner to robots, by openpi's websocket protocol. SIGTERM and Ctrl-C stop it cleanly."""

    where: Cells = field(default_factory=Where)
    planner: tyro.conf.OmitArgPrefixes[Planned] = field(default_factory=Planned)
    host: str = "127.0.0.1"
    """0.0.0.0 to be reached from other machines; put TLS in front of it then."""
    port: int = 8000
    """0 takes any free port."""
    token: bool = True
    """Clients must send a token: the value of the variable ACID_TOKEN, or else a random one, which is printed."""
    image_key: str = "observation/image"
    """Which entry of an observation is the camera's image."""
    goal_key: str = "goal/image"
    """Which entry of an observation is the image of the goal."""
    goal: Path | None = None
    """An image of the goal, for clients that send none."""
    limits: tyro.conf.OmitArgPrefixes[Bounds] = field(default_factory=Bounds)
    threads: int = 1
    """CPU threads for one plan."""
    compute: On = field(default_factory=Compute)

    def run(self) -> None:
        from acid.serving import Limits, PolicyServer, checked_port, run_server

        bounds = self.limits
        limits = Limits(
            connections=bounds.connections,
            message_bytes=round(bounds.message_mib * 2**20),
            rate=bounds.rate,
            burst=max(1, round(2 * bounds.rate)),
            batch=bounds.batch,
            idle_seconds=bounds.idle_seconds,
            plan_seconds=bounds.plan_seconds,
            grace_seconds=bounds.grace_seconds,
        )
        if self.threads < 1:
            raise AcidError(f"threads must be at least 1, got {self.threads}")
        checked_port(self.port)
        offer = self.planner.offer(self.where, self.compute)
        trust, note = offer.trust()
        service = offer.service(offer.bench(), trust, observation_key=self.image_key, goal_key=self.goal_key)
        token = (os.environ.get(TOKEN) or secrets.token_urlsafe(24)) if self.token else None
        goal = None if self.goal is None else _read_goal(self.goal, service.inputs.goal)
        server = PolicyServer(service, token=token, limits=limits, goal=goal, threads=self.threads)

        def ready(port: int) -> None:
            print(f"serving {self.where.task} with {offer.cell.model} ({offer.name}) on ws://{self.host}:{port}")
            if token is None:
                print("no token is needed")
            elif TOKEN not in os.environ:
                print(f"token: {token}")
            print(note, flush=True)

        run_server(server, host=self.host, port=self.port, ready=ready)
        print("stopped", file=sys.stderr)


@dataclass(frozen=True)
class Calibrate:
    """Execute held-out plans in simulation, to know which plans a server should not trust."""

    where: Cells = field(default_factory=Where)
    planner: tyro.conf.OmitArgPrefixes[Planned] = field(default_factory=Planned)
    episodes: int = 100
    """Number of problems, with one plan each; they are those on which λ is chosen."""
    level: float = 0.05
    """Share of good plans that may be flagged by mistake."""
    compute: On = field(default_factory=Compute)

    def run(self) -> None:
        import torch

        torch.set_num_threads(1)
        offer = self.planner.offer(self.where, self.compute)
        with bar(f"calibrate {self.where.task}", "plan") as progress:
            found = offer.calibrate(episodes=self.episodes, level=self.level, progress=progress)
        print(f"{found}\nwrote {offer.trust_file}")


def _read_goal(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    import numpy as np
    from PIL import Image

    try:
        image = np.asarray(Image.open(path).convert("RGB"))
    except OSError as error:
        raise AcidError(f"{path} is not an image: {error}") from error
    if image.shape != shape:
        raise AcidError(
            f"{path} must be an image of {shape[1]} × {shape[0]} pixels, got {image.shape[1]} × {image.shape[0]}"
        )
    return image
