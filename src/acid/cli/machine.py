"""`acid doctor` and `acid completion`: the installation itself."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

import tyro

from acid.errors import AcidError


@dataclass(frozen=True)
class Doctor:
    """Say what is installed and what is missing, then draw a picture and make a plan to see that both work."""

    def run(self) -> None:
        from acid.views import health

        print(health.machine(), end="\n\n")
        print("\n".join(health.extras()), end="\n\n")
        failed = []
        for title, check in health.CHECKS.items():
            passed, line = health.examine(title, check)
            print(line)
            failed += [] if passed else [title]
        if failed:
            raise AcidError(f"{' and '.join(failed)} failed: see above")


@dataclass(frozen=True)
class Completion:
    """Print a script with which a shell completes commands and options."""

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Example: acid completion bash > ~/.local/share/bash-completion/completions/acid"""

    def run(self) -> None:
        tyro.cli(_every_command(), prog="acid", args=["--tyro-print-completion", self.shell])


def _every_command() -> Any:
    """All commands as the subcommands of one, which `acid` itself never loads at once."""
    from acid.cli import COMMANDS

    found = []
    for name, command in COMMANDS.items():
        module, _, target = command.target.partition(":")
        value = getattr(importlib.import_module(module), {"train_command": "Train"}.get(target, target))
        found.append(Annotated[value, tyro.conf.subcommand(name)])
    return Union[tuple(found)]  # noqa: UP007
