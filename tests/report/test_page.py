"""The page as text: everything is in it, nothing is fetched, and what is written cannot break it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import numpy as np
import pytest
from page_values import TICKS, flat, page, reel

from acid.errors import DataError, ShapeError
from acid.report.page import Section, render
from acid.report.reel import Reel
from acid.report.shapes import Picture

VOID = {"meta", "link", "input", "img", "br", "hr"}


class Checker(HTMLParser):
    """Finds tags that are not closed, ids that are there twice, images without a text, and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in told:
            self.ids.append(told["id"])
        if tag == "img":
            assert told.get("alt")
        if tag == "a":
            self.links.append(told["href"])
        elif address := told.get("src") or told.get("href"):
            self.addresses.append(address)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    assert all(address.startswith("data:") for address in checker.addresses)
    assert all(link[1:] in checker.ids for link in checker.links if link.startswith("#"))
    assert not re.search(r"@import|url\((?!['\"]?data:)", text)
    return checker


def test_the_page_is_whole_and_fetches_nothing():
    text = render(page())
    check(text)
    for part in ("First &amp; foremost", "acid reproduce second", "Not run yet.", "Partly run.", "Beyond the paper"):
        assert part in text
    assert "<strong>1</strong> confirmed" in text
    assert "<b>In the paper:</b> +4 &lt;points&gt;." in text
    assert "+5 [+1, +9]." in text
    assert text.count('aria-label="Gains: use the arrow keys') == 2  # beside the lead, and in its section
    assert "<strong>0</strong> contradicted" in text  # our own claims are not counted with the paper's
    assert "the paper&#39;s, budget 2: 88 %" in text


def test_what_is_written_in_rows_cannot_become_part_of_the_page():
    text = render(page())
    assert "<b>x</b>" not in text
    assert "dark &lt;task&gt;" in text
    evil = replace(page(), sections=[Section("evil", "</title><script>alert(1)</script>", "acid", table="<script>")])
    assert "<script>alert" not in render(evil)
    check(render(evil))


def test_something_that_the_template_does_not_know_is_an_error():
    broken = replace(page(), sections=[object()])
    with pytest.raises(jinja2.UndefinedError):
        render(broken)


def test_a_film_is_kept_with_what_it_was_made_of(tmp_path: Path):
    path = tmp_path / "a" / "film.npz"
    reel().save(path, instance="i3")
    found, more = Reel.load(path)
    assert more == {"instance": "i3"}
    assert (found.ticks, found.steps, found.highest) == (TICKS, 2, 2.0)
    assert np.array_equal(found.tracks[1].frames, reel().tracks[1].frames)
    assert list(path.parent.iterdir()) == [path]
    assert found.films()[1]["columns"] == 4  # eleven frames as four by three


def test_a_damaged_film_is_named(tmp_path: Path):
    path = tmp_path / "film.npz"
    path.write_bytes(b"PK nonsense")
    with pytest.raises(DataError, match=r"film.npz is not a file of arrays .*; delete it and make it again"):
        Reel.load(path)
    lost = replace(reel(), tracks=[replace(reel().tracks[0], index=[0, 7])])
    lost.save(path)
    with pytest.raises(DataError, match="shows frames that it does not have"):
        Reel.load(path)


def test_a_picture_needs_frames():
    with pytest.raises(ShapeError):
        _ = Picture("t", "t", [flat([1])], ["four dimensions"]).sources
