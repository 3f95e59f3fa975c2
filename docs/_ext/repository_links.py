"""Files of the repository that are pages of the site: their text, and links to them.

A guide is also read in the repository, where `../CONTRIBUTING.md` is right. On the site that file is the page `house`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGES = {"house": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}


def _read(app: Any, name: str, text: list[str]) -> None:
    if name in PAGES:
        path = Path(app.srcdir).parent / PAGES[name]
        app.env.note_dependency(str(path))
        text[0] = path.read_text(encoding="utf-8").replace("](docs/", "](")
    for page, file in PAGES.items():
        for old in (f"](../{file}", f"]({file}"):
            text[0] = text[0].replace(old, f"]({page}.md")


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
