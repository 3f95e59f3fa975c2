"""The notebook runs from top to bottom, in a folder that is not its own."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "first-plan.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_and_shows_plans_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=1800, startup_timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    assert "original Plan(1 × 5 actions of 10 numbers" in text
    assert "| reacher |" in text
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert list(tmp_path.iterdir()) == []  # a reader's folder is left alone


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
