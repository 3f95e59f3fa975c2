"""`{command-help}`: a section for every command, with what `acid COMMAND --help` prints."""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stdout, suppress
from typing import Any

from sphinx.util.docutils import SphinxDirective

from acid import cli

NAMES = re.compile(r"^\W*• (\S+) ", re.MULTILINE)
DEEPER = {"train": ["train", "model", "lewm"]}  # whose options depend on what is trained


def help_of(*command: str) -> str:
    """What a command prints when asked for help."""
    os.environ.update(COLUMNS="88", NO_COLOR="1")
    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        cli.main([*command, "--help"])
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


def sections(*command: str) -> list[str]:
    """One section, and one for each command below it, in Markdown."""
    text = help_of(*DEEPER.get(" ".join(command), command))
    title = f"{'#' * (len(command) + 1)} acid {' '.join(command)}"
    names = NAMES.findall(text) if command else cli.COMMANDS
    below = [part for name in names for part in sections(*command, name)]
    return [*([f"{title}\n\n```text\n{text}\n```"] if command else []), *below]


class CommandHelp(SphinxDirective):
    """Sections of all commands, as deep as commands go."""

    def run(self) -> list[Any]:
        return self.parse_text_to_nodes("\n\n".join(sections()), allow_section_headings=True)


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
