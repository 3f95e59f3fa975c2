"""Build the site: the guides beside this file and the API pages, with one look and one search box.

    python docs/build.py site

pdoc documents Python modules, so each guide becomes the docstring of a temporary module.
"""

from __future__ import annotations

import pkgutil
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import pdoc

import acid

HERE = Path(__file__).resolve().parent
GUIDE_LINK = re.compile(r"\]\(([\w-]+)\.md(#[\w-]+)?\)")
REPOSITORY_LINK = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")


def write_guides(package: Path) -> None:
    """Write a package whose docstrings are the guides; its own docstring is the front page."""
    package.mkdir()
    write_module(package / "__init__.py", HERE / "index.md", folder="guide/")
    for guide in HERE.glob("*.md"):
        if guide.stem != "index":
            write_module(package / f"{module_name(guide.stem)}.py", guide, folder="")


def write_module(path: Path, guide: Path, *, folder: str) -> None:
    """Write one guide as a module. Links from its page to other guides lead to `folder`."""
    text = guide.read_text(encoding="utf-8")
    text = REPOSITORY_LINK.sub(r"`\1`", text)  # files of the repository are not on the site
    text = GUIDE_LINK.sub(lambda link: f"]({folder}{module_name(link[1])}.html{link[2] or ''})", text)
    path.write_text(f"__doc__ = {text!r}\n", encoding="utf-8")


def module_name(guide: str) -> str:
    return guide.replace("-", "_")


def api_modules() -> list[str]:
    """The names of all public modules. By itself, pdoc skips the submodules of a package that has an `__all__`."""
    modules = [module.name for module in pkgutil.walk_packages(acid.__path__, "acid.")]
    return ["acid", *(name for name in modules if "._" not in name)]


def main(site: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        guides = Path(folder) / "guide"
        write_guides(guides)
        warnings.filterwarnings("ignore", "The module specification", UserWarning)  # pdoc finds them itself too
        pdoc.render.configure(docformat="markdown", footer_text="ACID")
        pdoc.pdoc(guides, *api_modules(), output_directory=Path(site))
    shutil.copytree(HERE / "figures", Path(site) / "guide" / "figures", dirs_exist_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
