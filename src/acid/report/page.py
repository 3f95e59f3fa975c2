"""One page that holds everything: text, charts, pictures and films in a single file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from acid.errors import need_package
from acid.report import chart as charts
from acid.report.reel import Reel
from acid.report.shapes import Matrix, Picture

PageItem = charts.Chart | charts.Forest | Picture | Reel | Matrix
VERDICTS = ("confirmed", "not confirmed", "contradicted", "not run yet")


@dataclass(frozen=True)
class Judged:
    """A sentence and what became of it."""

    sentence: str
    verdict: str  # one of VERDICTS
    reason: str
    section: str  # whose id is that
    published: bool = True
    paper: str = ""  # what the paper has for it
    numbers: str = ""  # behind the reason

    @property
    def css(self) -> str:
        return self.verdict.replace(" ", "-")


@dataclass(frozen=True)
class Section:
    """A part of the page: a table or figure of the paper."""

    id: str  # also how it is called in the list of sections
    title: str
    command: str  # how it is made again
    missing: Sequence[str] = ()  # what has not been run, in words
    shown: Sequence[PageItem] = ()
    overview: str = ""  # Markdown above the table
    table: str = ""  # Markdown
    notes: str = ""  # Markdown below it
    judged: Sequence[Judged] = ()
    empty: bool = False  # nothing of it has been run


@dataclass(frozen=True)
class Page:
    title: str
    lead: str  # Markdown
    sections: Sequence[Section]
    rule: str  # how claims are judged
    made_by: str  # which code and weights
    hero: PageItem | None = None  # beside the lead

    @property
    def judged(self) -> list[Judged]:
        return [one for section in self.sections for one in section.judged]

    def count(self, verdict: str) -> int:
        return sum(one.verdict == verdict for one in self.judged if one.published)


def render(page: Page) -> str:
    """The page as HTML."""
    wanted = ("jinja2", "markdown_it", "markupsafe")
    jinja2, markdown_it, markupsafe = (need_package(name, "report", "the page") for name in wanted)
    loader = jinja2.PackageLoader("acid.report", "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    markdown = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table")
    environment.filters["markdown"] = lambda text: markupsafe.Markup(
        markdown.render(text)
    )  # HTML in the text is escaped
    environment.filters["zip"] = lambda first, second: zip(first, second, strict=True)
    environment.filters["kind"] = lambda shown: type(shown).__name__.lower()
    environment.globals.update(
        panels=charts.drawn_panels,
        forest=charts.drawn_forest,
        size={"width": charts.WIDTH, "height": charts.HEIGHT, "left": charts.LEFT, "bottom": charts.BOTTOM},
        verdicts=VERDICTS,
        asset=lambda name: markupsafe.Markup(_asset(name)),
    )
    return environment.get_template("page.html").render(page=page)


def _asset(name: str) -> str:
    """A style sheet or script that becomes part of the page."""
    return resources.files("acid.report").joinpath("templates", name).read_text(encoding="utf-8")
