"""The API pages: one per room, written before a build; every name once, where it is meant to be imported from.

Docstrings are Markdown, like the guides.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.util.docutils import SphinxDirective

# A name that several rooms have is documented in the first.
ROOMS = {
    "acid.types": "the shared types and their shapes",
    "acid.planning": "searches, costs, planner and controller",
    "acid.planning.search": "what searches are made of",
    "acid.verifier": "the inverse dynamics model and its report",
    "acid.models": "world models",
    "acid.models.contract": "what a world model of your own provides",
    "acid.data": "episodes on disk",
    "acid.tasks": "simulated tasks",
    "acid.training": "from a dataset to any part of a cell",
    "acid.evaluation": "comparing agents on held-out problems",
    "acid.report": "figures, sheets and videos",
    "acid.tables": "the tables of the paper",
    "acid.checkpoint": "the format of checkpoints",
    "acid.loop": "the training loop",
    "acid.device": "names of devices",
    "acid.errors": "errors that a user can act on",
}


def rooms() -> dict[str, str]:
    """Names of modules and what they are about, other projects' formats included."""
    import acid.integrations

    found = dict(ROOMS)
    for module in pkgutil.iter_modules(acid.integrations.__path__, "acid.integrations."):
        if "._" not in module.name:
            summary = (importlib.import_module(module.name).__doc__ or "").partition("\n")[0]
            found[module.name] = summary.rstrip(".")
    return found


def public(module: ModuleType) -> dict[str, Any]:
    """The names of a module that are meant for others."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name, value in vars(module).items() if _is_own(module, name, value)]
    return {name: getattr(module, name) for name in names if not name.startswith("_")}


def _is_own(module: ModuleType, name: str, value: Any) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", None) == module.__name__


def page(name: str, seen: dict[int, str]) -> str:
    """A page with every public name of a module that no page before it has."""
    entries = []
    for key, value in public(importlib.import_module(name)).items():
        if not inspect.ismodule(value) and seen.setdefault(id(value), f"{name}.{key}") == f"{name}.{key}":
            entries.append(f".. {_directive(value)}:: {name}.{key}\n{_options(value)}")
    return f"# {name}\n\n```{{markdown-docstring}} {name}\n```\n\n````{{eval-rst}}\n{chr(10).join(entries)}````\n"


def _directive(value: Any) -> str:
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if inspect.isroutine(value) else "autodata"


def _options(value: Any) -> str:
    if not inspect.isclass(value):
        return "   :no-value:\n" if not inspect.isroutine(value) else ""
    return "   :members:\n"


def front_door(seen: dict[int, str]) -> str:
    """What `import acid` gives, each name with the page that documents it."""
    import acid

    lines = ["# API", "", "```{markdown-docstring} acid", "```", "", "| name | documented in |", "|---|---|"]
    for name, value in public(acid).items():
        if id(value) in seen:
            target = seen[id(value)]
            lines.append(f"| `acid.{name}` | {{py:obj}}`{target}` |")
    about = [f"| [{name}]({name}.md) | {text} |" for name, text in rooms().items()]
    lines += ["", "## Rooms", "", "| module | about |", "|---|---|", *about, ""]
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", *rooms(), "```", ""])


def write(app: Any) -> None:
    """Write the pages into the folder `api`. One that has not changed is left alone, so that it is not built again."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    seen: dict[int, str] = {}
    pages = {name: page(name, seen) for name in rooms()}
    pages["index"] = front_door(seen)
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


class MarkdownText(SphinxDirective):
    """Its content, or the docstring of the module that is its argument, read as Markdown."""

    has_content = True
    optional_arguments = 1

    def run(self) -> list[Any]:
        module = importlib.import_module(self.arguments[0]) if self.arguments else None
        text = inspect.getdoc(module) or "" if module else "\n".join(self.content)
        document = new_document(self.get_source_info()[0], self.state.document.settings)
        MystParser().parse(text, document)
        return document.children


def _as_markdown(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    if what == "data" and (inspect.getdoc(type(value)) or "").startswith(lines[0] if lines else " "):
        lines.clear()  # a value without a docstring of its own has that of its type
    if any(line.strip() for line in lines):
        lines[:] = [".. markdown-docstring::", "", *(f"   {line}" for line in lines), ""]


def _signature(app: Any, what: str, name: str, value: Any, options: Any, signature: str | None, result: Any) -> Any:
    """Defaults that a factory makes are written so that the signature is still Python."""
    return (signature.replace("<factory>", "..."), result) if signature else None


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("markdown-docstring", MarkdownText)
    app.connect("builder-inited", write)
    app.connect("autodoc-process-docstring", _as_markdown)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}
