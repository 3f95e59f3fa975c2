"""The paper's tables and figures by name. One mechanism; each table is a value in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping

from acid.errors import named
from acid.tables.deformable import DEFORMABLE
from acid.tables.navigation import NAVIGATION
from acid.tables.planning import PLANNING
from acid.tables.program import choose, reproduce, write
from acid.tables.proposals import PROPOSALS
from acid.tables.table import Choice, Claim, Column, Findings, Line, Options, Study, Table

TABLES: Mapping[str, Table] = named((PLANNING, DEFORMABLE, NAVIGATION, PROPOSALS), "table")

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
    "choose",
    "reproduce",
    "write",
]
