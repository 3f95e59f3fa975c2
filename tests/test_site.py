"""The documentation builds without a warning, and what a reader clicks on is there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
LINK = re.compile(r"""\s(?:href|src)="(?!https?:|mailto:|data:)([^"#?]*)(?:\?[^"#]*)?(?:#([^"]*))?\"""")
ID = re.compile(r"""\sid="([^"]+)\"""")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does it."""
    folder = tmp_path_factory.mktemp("site")
    options = [
        "--fail-on-warning",
        "--keep-going",
        "-q",
        "-D",
        "nb_execution_mode=off",
        "-b",
        "html",
        "-d",
        str(folder / "doctrees"),
    ]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(folder / "html")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder / "html"


def test_every_link_and_picture_leads_somewhere(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    anchors = {path: set(ID.findall(text)) for path, text in pages.items()}
    dead = []
    for page, text in pages.items():
        for target, anchor in LINK.findall(text):
            path = (page.parent / target).resolve() if target else page
            if not path.exists() or (anchor and path in anchors and anchor not in anchors[path]):
                dead.append(f"{page.relative_to(site)} → {target}#{anchor}")
    assert dead == []


def test_every_figure_is_shown(site: Path) -> None:
    shown = {path.name for path in (site / "_images").iterdir()}
    assert {path.name for path in (DOCS / "figures").iterdir()} <= shown


def test_search_knows_every_name_once(site: Path) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    documented = [(prefix, entry[4]) for prefix, entries in index["objects"].items() for entry in entries]
    classes = Counter(name for prefix, name in documented if name[:1].isupper() and prefix.startswith("acid"))
    assert classes["Planner"] == classes["Verifier"] == 1
    assert [title for title, count in Counter(index["titles"]).items() if count > 1] == []


def test_the_landing_page_leads_to_every_guide(site: Path) -> None:
    landing = (site / "index.html").read_text(encoding="utf-8")
    missing = [path.stem for path in DOCS.glob("*.md") if path.stem != "index" and f'"{path.stem}.html' not in landing]
    assert missing == []
    assert 'href="report.html"' in landing
    assert (site / "report.html").read_bytes() == (DOCS / "report.html").read_bytes()


def test_every_command_has_its_help(site: Path) -> None:
    page = (site / "commands.html").read_text(encoding="utf-8")
    for command in ("demo", "eval", "train", "reproduce planning"):
        assert f"acid {command}" in page
    assert "--lambdas" in page
