"""The `acid` command: parse, call, print."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro

from acid.cli.data import Collect, Import
from acid.cli.plan import Demo, Evaluate, PlanOne, Results
from acid.cli.reproduce import Card, Diagnose, Reproduce
from acid.cli.train import Train
from acid.errors import AcidError

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[PlanOne, tyro.conf.subcommand("plan")]
    | Annotated[Evaluate, tyro.conf.subcommand("eval")]
    | Annotated[Results, tyro.conf.subcommand("results")]
    | Annotated[Import, tyro.conf.subcommand("import")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Card, tyro.conf.subcommand("card")]
    | Annotated[Diagnose, tyro.conf.subcommand("diagnose")]
)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error that the user can mend is printed without a traceback."""
    command = tyro.cli(Command, prog="acid", args=arguments)  # type: ignore[arg-type]
    try:
        command.run()
    except AcidError as error:
        print(f"acid: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("acid: stopped; the same command continues", file=sys.stderr)
        raise SystemExit(130) from None
