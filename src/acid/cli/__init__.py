"""The `acid` command: parse, call, print."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro

from acid.cli.data import Collect, Convert, Import
from acid.cli.evaluate import Evaluate, Results
from acid.cli.inspect import Inspect
from acid.cli.machine import Completion, Doctor
from acid.cli.plan import Card, Demo, Diagnose, Plan
from acid.cli.report import Report
from acid.cli.reproduce import Reproduce
from acid.cli.serve import Calibrate, Serve
from acid.cli.train import Train, train_command
from acid.errors import AcidError

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Plan, tyro.conf.subcommand("plan")]
    | Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Import, tyro.conf.subcommand("import")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("eval")]
    | Annotated[Results, tyro.conf.subcommand("results")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Diagnose, tyro.conf.subcommand("diagnose")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Card, tyro.conf.subcommand("card")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Completion, tyro.conf.subcommand("completion")]
    | Annotated[Serve, tyro.conf.subcommand("serve")]
    | Annotated[Calibrate, tyro.conf.subcommand("calibrate")]
)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error that the user can mend is printed without a traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given == ["--version"]:
            from acid.views.health import version

            print(version())
        elif given[:1] == ["train"]:  # its options depend on what is trained
            train_command(given[1:])
        else:
            tyro.cli(Command, prog="acid", args=given).run()  # type: ignore[call-overload]
    except AcidError as error:
        print(f"acid: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("acid: stopped; the same command continues", file=sys.stderr)
        raise SystemExit(130) from None
