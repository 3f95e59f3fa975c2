"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters of one server."""

    def __init__(self, *, connections: Callable[[], int], waiting: Callable[[], int]) -> None:
        self._registry = registry = CollectorRegistry()
        Gauge("acid_connections", "Open connections", registry=registry).set_function(connections)
        Gauge("acid_waiting", "Requests that wait for the planner", registry=registry).set_function(waiting)
        self.refused = Counter("acid_refused", "Handshakes refused, by reason", ["reason"], registry=registry)
        self.requests = Counter("acid_requests", "Requests, by how they ended", ["result"], registry=registry)
        self.untrusted = Counter("acid_untrusted_plans", "Plans answered as not to be trusted", registry=registry)
        self.seconds = Histogram("acid_request_seconds", "To an answer", registry=registry, buckets=_SECONDS)
        self.batches = Counter("acid_batches", "Batches of requests planned for", registry=registry)

    def text(self) -> str:
        return generate_latest(self._registry).decode()
