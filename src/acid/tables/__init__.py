"""The paper's tables and figures by name. One mechanism; each table is a value in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping

from acid.errors import named
from acid.tables.compute import COMPUTE
from acid.tables.confirmation import CONFIRMATION
from acid.tables.deformable import DEFORMABLE
from acid.tables.env import ENV
from acid.tables.idm import IDM
from acid.tables.imagination import IMAGINATION
from acid.tables.latency import LATENCY
from acid.tables.navigation import NAVIGATION
from acid.tables.parts import PARTS_TABLE
from acid.tables.planning import PLANNING
from acid.tables.program import choose, reproduce, write
from acid.tables.proposals import PROPOSALS
from acid.tables.robustness import ROBUSTNESS
from acid.tables.shapes import SHAPES_TABLE
from acid.tables.spread import SPREAD
from acid.tables.studies import EULER_TABLE, LIMITS, ONE_LAMBDA, SWAP
from acid.tables.symmetries import SYMMETRIES
from acid.tables.table import Choice, Claim, Column, Findings, Line, Options, Study, Table
from acid.tables.verdict import Verdict
from acid.tables.weighting import WEIGHTING

_ALL = (PLANNING, DEFORMABLE, NAVIGATION, ROBUSTNESS, WEIGHTING, ONE_LAMBDA, SPREAD, LATENCY, EULER_TABLE, SWAP, LIMITS)
_ALL += (IMAGINATION, ENV, IDM, PROPOSALS, COMPUTE, PARTS_TABLE, SHAPES_TABLE, SYMMETRIES, CONFIRMATION)
TABLES: Mapping[str, Table] = named(_ALL, "table")

__all__ = [
    "TABLES",
    "Choice",
    "Claim",
    "Column",
    "Findings",
    "Line",
    "Options",
    "Study",
    "Table",
    "Verdict",
    "choose",
    "reproduce",
    "write",
]
