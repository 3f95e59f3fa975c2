"""Limits of a server, and the check of its clients' token."""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from acid.errors import AcidError


@dataclass(frozen=True)
class Limits:
    """Of a server; every one of them is positive."""

    connections: int = 16  # at once
    message_bytes: int = 4 * 2**20  # the largest observation
    rate: float = 20.0  # requests a second from one address, over a while; `burst` at once
    burst: int = 40
    batch: int = 8  # requests that wait are planned for together, at most so many
    handshake_seconds: float = 10.0
    idle_seconds: float = 600.0  # until the next message is complete, so that slow bodies end, too
    plan_seconds: float = 60.0  # from a request to its answer
    grace_seconds: float = 30.0  # that requests under way get when the server is told to stop

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0) or (field.type == "int" and value < 1):
                raise AcidError(f"the limit {field.name} must be a positive number, got {value}")


class Buckets:
    """Requests by address: `burst` tokens each, refilled at `rate` a second. A full bucket is forgotten."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens at a time

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, address: str) -> float:
        """0 if a request may pass, else the seconds to wait for the next one."""
        now, rate, burst = self._clock(), self._limits.rate, self._limits.burst
        full = [name for name, (tokens, since) in self._buckets.items() if tokens + (now - since) * rate >= burst]
        for name in full:
            del self._buckets[name]
        tokens, since = self._buckets.get(address, (burst, now))
        tokens += (now - since) * rate
        passes = tokens >= 1
        self._buckets[address] = (tokens - passes, now)
        return 0.0 if passes else (1 - tokens) / rate


def allowed(token: str | None, authorization: str | None) -> bool:
    """Whether a header `Api-Key TOKEN` (openpi's clients) or `Bearer TOKEN` names the token; None asks for none."""
    if token is None:
        return True
    scheme, _, given = (authorization or "").strip().partition(" ")
    same = hmac.compare_digest(given.strip().encode(), token.encode())
    return same and scheme.lower() in ("api-key", "bearer")
