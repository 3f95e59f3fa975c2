"""The page in real Chromium: its controls work, nothing is logged as an error, and no request leaves it.

Nothing here depends on how fast the machine is: each step waits for what it expects.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_values import TICKS, page

from acid.report.page import render

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PATIENCE = 180_000  # ms
COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "report.html"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
ARGUMENTS += ["--disable-component-update", "--disable-dev-shm-usage"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; `make browser` installs it where it may"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=PATIENCE)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(render(page()), encoding="utf-8")
    return path


class Visit:
    """A page opened from disk, with everything that it logged and asked for."""

    def __init__(self, chromium: Any, path: Path, *, width: int = 1280, dark: bool = False) -> None:
        self.context = chromium.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light"
        )
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def check(self) -> None:
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []
        assert sum(url.startswith("file:") for url in self.requests) == 1

    def wait(self, condition: str) -> None:
        self.page.wait_for_function(condition)


@pytest.fixture
def visit(chromium: Any, written: Path) -> Iterator[Visit]:
    made = Visit(chromium, written)
    yield made
    made.check()
    made.context.close()


GREYS = "[...document.querySelectorAll('canvas')].map(c => c.getContext('2d').getImageData(8, 8, 1, 1).data[0])"


def near(greys: list[int]) -> str:
    """A condition on the middle pixels of the films; pictures are compressed, so about."""
    return f"(() => {{ const g = {GREYS}; return {greys}.every((v, k) => Math.abs(v - g[k]) < 8); }})()"


def test_the_scrubber_moves_every_film_and_marks_the_step(visit: Visit):
    visit.wait(near([250, 200, 128]))  # a film that nobody has played yet shows how it ended
    for tick, greys, step in ((1, [100, 20, 128], "0"), (6, [250, 120, 128], "1"), (10, [250, 200, 128], "1")):
        visit.page.eval_on_selector(
            ".reel input", "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", str(tick)
        )
        visit.wait(near(greys))
        assert visit.page.inner_text(".reel output") == f"frame {tick} / {TICKS - 1}"
        assert visit.page.inner_text(".reel .track:nth-child(2) .note") == f"error {tick}"
        assert visit.page.get_attribute(".bar.now", "data-step") == step


def test_the_keyboard_moves_the_scrubber(visit: Visit):
    visit.page.focus(".reel input")
    visit.page.keyboard.press("Home")
    visit.wait(near([0, 0, 128]))
    visit.page.keyboard.press("ArrowRight")
    visit.wait(near([100, 20, 128]))
    visit.page.keyboard.press("End")
    visit.wait(near([250, 200, 128]))


def test_play_runs_to_the_end_and_starts_again(visit: Visit):
    visit.page.click(".play")
    visit.wait(f"document.querySelector('.reel input').value !== '{TICKS - 1}'")
    visit.wait(f"document.querySelector('.reel input').value === '{TICKS - 1}'")
    visit.wait("document.querySelector('.play').textContent === 'Play'")
    visit.wait(near([250, 200, 128]))
    visit.page.click(".play")
    visit.wait("document.querySelector('.play').textContent === 'Pause'")


def test_a_bar_leads_to_its_step(visit: Visit):
    visit.page.dispatch_event(".bar[data-step='0']", "click")
    visit.wait(near([100, 100, 128]))


def test_values_are_told_by_pointer_and_by_keyboard(visit: Visit):
    visit.page.dispatch_event("figure.chart .mark", "pointerover")
    visit.wait("document.getElementById('tip').textContent === 'A, ours, budget 1: 60 [50, 70] % (200 episodes)'")
    visit.page.focus("figure.forest svg")
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("ArrowDown")
    visit.wait("document.getElementById('tip').textContent === 'Reacher: +6 [+1, +11] points'")
    visit.page.keyboard.press("Escape")
    visit.wait("document.getElementById('tip').hidden")


def test_light_and_dark_can_be_changed_and_follow_the_system(chromium: Any, written: Path):
    paper = "getComputedStyle(document.body).backgroundColor"
    seen = []
    for dark in (False, True):
        visit = Visit(chromium, written, dark=dark)
        before = visit.page.evaluate(paper)
        visit.page.click("#theme")
        seen.append((before, visit.page.evaluate(paper)))
        visit.check()
        visit.context.close()
    assert seen[0] == seen[1][::-1]
    assert seen[0][0] != seen[0][1]


def test_a_command_can_be_copied(visit: Visit):
    visit.page.click(".copy >> nth=0")
    visit.wait("['Copied', 'Selected'].includes(document.querySelector('.copy').textContent)")


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("which", ["written", "committed"])
def test_nothing_sticks_out_and_every_figure_has_a_name(chromium: Any, written: Path, which: str, width: int):
    visit = Visit(chromium, written if which == "written" else COMMITTED, width=width)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.page.evaluate("[...document.images].every(image => image.alt)")
    assert visit.page.evaluate("[...document.querySelectorAll('figure svg')].every(s => s.getAttribute('aria-label'))")
    assert visit.page.evaluate("[...document.querySelectorAll('button')].every(b => b.innerText.trim())")
    visit.wait("[...document.querySelectorAll('canvas')].every(c => c.getContext('2d').getImageData(0,0,1,1).data[3])")
    visit.check()
    visit.context.close()
