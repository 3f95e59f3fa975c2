"""Every table can be made of a user's own cells, and of a folder that has only some of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from acid import cli
from acid.errors import AcidError
from acid.evaluation import Cell
from acid.tables import TABLES, Findings, Options, write
from acid.tables.outlook import outlook
from acid.tables.page import page_of
from acid.tables.table import with_cells

OWN = (("reacher", "lewm"), ("rope", "dinowm"))
WITHOUT = {"navigation", "shapes", "swap"}  # tables that have neither of these cells, or nothing to borrow from


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two of the shipped cells in a folder of the user's own, without a chosen λ."""
    for task, model in OWN:
        own = tmp_path / "runs" / task / model
        own.mkdir(parents=True)
        for part in Path(Cell(task, model).root).iterdir():
            if part.is_dir():
                (own / part.name).symlink_to(part)
    return tmp_path / "runs"


def test_tables_with_one_of_the_cells_are_made_and_the_others_are_left_out(folder: Path, tmp_path: Path):
    options = Options(tmp_path / "results", folder)
    found = with_cells(TABLES.values(), options)
    assert {one.table.name for one in found} == TABLES.keys() - WITHOUT
    for findings in found:
        assert {(study.task, study.model) for study in findings.studies} <= set(OWN)
        assert outlook(findings).cpu_seconds in (None, 0.0)  # nothing was run, so no row tells how long it takes
        assert write(findings)
    with pytest.raises(AcidError, match="there are no cells of this table below"):
        _ = Findings(TABLES["shapes"], options).studies
    assert {section.id for section in page_of(TABLES.values(), options).sections} == TABLES.keys() - WITHOUT
    with pytest.raises(AcidError, match="there are no cells below"):
        with_cells(TABLES.values(), Options(tmp_path / "results", tmp_path / "nowhere"))


def test_all_says_what_will_run_and_what_is_left_out(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    cli.main(["reproduce", "all", "--dry-run", "--folder", str(folder), "--results", str(tmp_path / "results")])
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert told.keys() == TABLES.keys()
    assert all(told[name] == f"left out: no cell of it is below {folder}" for name in WITHOUT)
    assert told["planning"].endswith("episodes, time unknown")
    assert told["env"] == "nothing to evaluate"
    assert not (tmp_path / "results").exists()


def test_tables_of_ones_own_cells_are_kept_beside_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli.main(["reproduce", "planning", "--no-evaluate", "--folder", str(folder)])
    assert (folder / "results" / "planning.md").is_file()
    assert not (tmp_path / "results").exists()
