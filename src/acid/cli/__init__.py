"""The `acid` command: parse, call, print. What a command needs is imported when it is run, so help comes at once."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from acid.cli.extras import explain, need
from acid.errors import AcidError, AcidWarning, look_up, plain


class Command(NamedTuple):
    """Where the code of a command is, what the command does, and which extras it needs."""

    target: str  # module:class, whose options tyro reads, or module:function of the arguments
    about: str
    extras: tuple[str, ...]


# To add a command, write its class in a module here and name it in this table.
COMMANDS = {
    "demo": Command(
        "acid.cli.plan:Demo",
        "plan the same problems with and without ACID: a table, pictures and a film",
        ("evaluation", "report"),
    ),
    "plan": Command("acid.cli.plan:Plan", "plan one held-out problem and show the plan", ("evaluation",)),
    "collect": Command("acid.cli.data:Collect", "collect episodes of a task", ("data",)),
    "import": Command("acid.cli.data:Import", "turn a dataset of another format into one of this library", ("data",)),
    "convert": Command(
        "acid.cli.data:Convert", "turn a published world model or tokenizer into a checkpoint", ("data",)
    ),
    "train": Command("acid.cli.train:train_command", "train one part of a cell", ("evaluation",)),
    "eval": Command("acid.cli.evaluate:Evaluate", "compare conditions on held-out, paired episodes", ("evaluation",)),
    "results": Command("acid.cli.evaluate:Results", "summarise what is in a folder of results", ("evaluation",)),
    "reproduce": Command("acid.cli.reproduce:Reproduce", "run or resume a table of the paper", ("evaluation",)),
    "report": Command("acid.cli.report:Report", "write one page with all results", ("evaluation", "report")),
    "diagnose": Command("acid.cli.plan:Diagnose", "why ACID helps in a cell, or not", ("evaluation",)),
    "inspect": Command("acid.cli.inspect:Inspect", "what a model and its verifier know, from recorded data", ("data",)),
    "card": Command("acid.cli.plan:Card", "write the model card of a cell", ("evaluation",)),
    "serve": Command("acid.cli.serve:Serve", "answer robots over the network with plans", ("evaluation", "serve")),
    "calibrate": Command(
        "acid.cli.serve:Calibrate", "find out when a plan is not to be trusted", ("evaluation", "serve")
    ),
    "doctor": Command("acid.cli.machine:Doctor", "say what is installed, and try drawing and planning", ()),
    "completion": Command("acid.cli.machine:Completion", "print what a shell needs to complete commands", ()),
}


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error that the user can mend is printed without a traceback."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        if name in ("-h", "--help"):
            print(usage())
        elif name == "--version":
            from acid.views.health import version

            print(version())
        else:
            with _warnings_in_one_line():
                _run(name, rest)
    except AcidError as error:
        _say(error)
        raise SystemExit(1) from None
    except ModuleNotFoundError as error:
        _say(explain(error))
        raise SystemExit(1) from None
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it closes stdout
        raise SystemExit(1) from None
    except (KeyboardInterrupt, SystemError) as error:
        if not _interrupted(error):
            raise
        _say("stopped; the same command continues")
        raise SystemExit(130) from None


def _interrupted(error: BaseException) -> bool:
    """Whether it is Ctrl-C, which CPython 3.11 turns into a SystemError where it falls into `ast.parse`."""
    return isinstance(error, KeyboardInterrupt) or "AST constructor recursion depth mismatch" in str(error)


def usage() -> str:
    """The list of commands."""
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "usage: acid COMMAND [options]",
            "",
            "Planning with learned world models that checks what the model imagines.",
            "",
            *(f"  {name:{width}}  {command.about}" for name, command in COMMANDS.items()),
            "",
            "acid COMMAND --help lists the options of a command, acid --version tells the version.",
        ]
    )


def _run(name: str, arguments: list[str]) -> None:
    command = look_up(COMMANDS, name, "command")
    need(f"acid {name}", "cli", *command.extras)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where a task of the user's own may be
    module, attribute = command.target.split(":")
    target: Any = getattr(importlib.import_module(module), attribute)
    if not isinstance(target, type):
        target(arguments)
        return
    import tyro

    tyro.cli(target, prog=f"acid {name}", args=arguments).run()  # type: ignore[attr-defined]


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any) -> None:
            if issubclass(category, AcidWarning):
                _say(f"warning: {message}")
            else:
                usual(message, category, *where)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _say(message: object) -> None:
    """To the terminal, which must not obey names from files."""
    print("\n".join(map(plain, f"acid: {message}".splitlines())), file=sys.stderr)
