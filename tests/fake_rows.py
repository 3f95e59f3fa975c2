"""Rows of episodes that nobody played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acid.evaluation import Row, RowFile, SearchSpec

SPEC = SearchSpec("cem", 300, 30, 30)
SAME = {"checkpoints": {"model": "aaa"}, "precision": "float32", "goal_offset_steps": 25, "budget_steps": 50}


def row(number: int = 0, **changes: Any) -> Row:
    """An episode of a line; condition acid at λ 0.07 unless changed."""
    values: dict[str, Any] = {
        **{"task": "line", "model": "m", "condition": "acid", "search": SPEC, "lam": 0.07, "split": "test"},
        **{"seed": 0, "instance": f"i{number}", "episode": number, "start_step": 3, "draw": number},
        **{"solved_at_start": False, "metric": "success", "higher_is_better": True, "error_unit": "m"},
        **{"success": True, "steps": 7, "initial_error": 2.5, "final_error": 0.25, "revision": "abc"},
    }
    return Row(**values | SAME | changes)


def keep(path: Path, rows: list[Row]) -> Path:
    """Rows of one condition in a file."""
    with RowFile(path, {name: getattr(rows[0], name) for name in SAME}, fresh=True) as file:
        file.append(rows)
    return path
