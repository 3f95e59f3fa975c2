"""The page of a results folder: verdicts, what is missing, and the command that makes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from table_rows import write_rows

from acid import cli
from acid.report.page import render
from acid.tables import TABLES, Claim, Column, Findings, Options, Study, Table, Verdict
from acid.tables.page import page_of

STUDIES = (Study("reacher", "lewm", ("original", "acid")), Study("cube", "lewm", ("original", "acid")))


def judge(findings: Findings) -> Verdict | None:
    found = findings.compare(STUDIES[0], "acid", "original", "success")
    return None if found is None else Verdict("contradicted", f"{found.difference:+.1f} on {found.n}.", "Some.")


TABLE = Table(
    name="tiny",
    title="A tiny table",
    studies=STUDIES,
    episodes=4,
    legend=("n: episodes",),
    columns=(Column("condition", lambda line: line.condition), Column("n", lambda line: str(line.n))),
    texts=1,
    claims=(Claim("It helps.", judge, paper="+4."), Claim("Always.", lambda findings: None, published=False)),
)


def test_a_table_without_rows_says_how_it_is_made(tmp_path: Path):
    found = page_of([TABLE], Options(tmp_path))
    (section,) = found.sections
    assert section.empty
    assert section.command == "acid reproduce tiny"
    assert [one.verdict for one in found.judged] == ["not run yet"] * 2
    assert found.judged[0].reason == "Nothing of it has been run yet: acid reproduce tiny."
    assert (found.count("not run yet"), found.count("confirmed")) == (1, 0)  # of the paper's claims
    assert "Not run yet." in render(found)


def test_a_table_with_some_rows_says_what_is_missing(tmp_path: Path):
    findings = Findings(TABLE, Options(tmp_path))
    for name, wins in (("original", 4), ("acid", 1)):
        write_rows(findings, STUDIES[0], name, [{"success": k < wins} for k in range(4)])
    found = page_of([TABLE], findings.options)
    (section,) = found.sections
    assert not section.empty
    assert section.missing == ["lewm on cube (cem-n300-j30-k30-h5) (not evaluated yet)"]
    assert [one.verdict for one in section.judged] == ["contradicted", "not run yet"]
    first = section.judged[0]
    assert (first.reason, first.paper, first.numbers) == ("-0.8 on 4.", "+4.", "Some.")
    text = render(found)
    assert "<td>acid</td>" in text
    assert "Partly run." in text


def test_films_come_first_whatever_the_order_of_the_tables(tmp_path: Path):
    films = replace(TABLE, name="imagination")
    assert [s.id for s in page_of([TABLE, films], Options(tmp_path)).sections] == ["imagination", "tiny"]


def test_a_page_of_nothing_lists_every_command(tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "results").mkdir()
    cli.main(["report", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "a" / "page.html")])
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path / 'a' / 'page.html'} (0.")
    text = (tmp_path / "a" / "page.html").read_text()
    assert all(f"acid reproduce {name}</code>" in text for name in TABLES)
    assert "attention mask" in text  # drawn from the code, so it is always there


def test_the_committed_page_is_whole_and_small():
    path = Path(__file__).resolve().parents[2] / "docs" / "report.html"
    assert path.stat().st_size < 20e6
    text = path.read_text()
    assert all(f"acid reproduce {name}</code>" in text for name in TABLES)
    assert text.count('class="reel"') >= 3
