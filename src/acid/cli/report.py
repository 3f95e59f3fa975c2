"""`acid report`: everything on one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from acid.cli.options import usual_results
from acid.errors import AcidError


@dataclass(frozen=True)
class Report:
    """Write one HTML file with every claim, table, figure and film that the results hold; it needs no network."""

    results: Path | None = None
    """Folder with rows and tables. Default: results, or FOLDER/results with --folder."""
    out: Path = Path("out/report.html")
    folder: Path | None = None
    """Your own checkpoints, if the results were made with them; default: the shipped ones."""

    def run(self) -> None:
        from acid.files import write_text
        from acid.report.page import render
        from acid.tables import TABLES, Options
        from acid.tables.page import page_of

        results = self.results or usual_results(self.folder)
        if not results.is_dir():
            raise AcidError(f"no results: {results} is not a folder; `acid reproduce` makes some")
        text = render(page_of(TABLES.values(), Options(results, self.folder)))
        write_text(self.out, text)
        print(f"wrote {self.out} ({len(text.encode()) / 1e6:.1f} MB)")
