"""A policy server for robots: openpi's websocket protocol in front of a planner."""

from acid.serving.limits import Limits
from acid.serving.messages import MessageError, pack, unpack
from acid.serving.run import checked_port, run_server
from acid.serving.server import PolicyServer
from acid.serving.service import Inputs, Service
from acid.serving.trust import Trust, calibrate

__all__ = [
    "Inputs",
    "Limits",
    "MessageError",
    "PolicyServer",
    "Service",
    "Trust",
    "calibrate",
    "checked_port",
    "pack",
    "run_server",
    "unpack",
]
