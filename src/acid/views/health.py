"""What is installed, what is missing, and whether drawing and planning work on this machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from acid.errors import AcidError

PACKAGE = "acid-planning"
FOR_DEVELOPERS = {"dev", "docs", "peer", "all"}  # extras that are no feature of their own


def version() -> str:
    return f"acid {metadata.version(PACKAGE)}"


def machine() -> str:
    """The version of everything that matters in a bug report, and the devices."""
    import torch

    devices = ["cpu", *(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count()))]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    return (
        f"{version()}, Python {platform.python_version()}, torch {torch.__version__}, {platform.platform()}\n"
        f"devices: {', '.join(devices)}; {os.cpu_count()} CPU cores"
    )


def extras() -> Iterator[str]:
    """A line for every extra: the versions of its packages, or how to install it."""
    found = metadata.metadata(PACKAGE).get_all("Provides-Extra") or []
    for extra in sorted(set(found) - FOR_DEVELOPERS):
        wanted = {name: _installed(name) for name in sorted(_packages(extra))}
        missing = [name for name, number in wanted.items() if number is None]
        if missing:
            yield f"  - {extra:<12} missing {', '.join(missing)}; run: pip install '{PACKAGE}[{extra}]'"
        else:
            yield f"  ✓ {extra:<12} {', '.join(f'{name} {number}' for name, number in wanted.items())}"


def _packages(extra: str) -> set[str]:
    """The packages that an extra needs on this machine, those of extras inside it included."""
    from packaging.requirements import Requirement

    found: set[str] = set()
    for entry in map(Requirement, metadata.requires(PACKAGE) or ()):
        if entry.marker and entry.marker.evaluate({"extra": extra}):
            found.update(*(map(_packages, entry.extras) if entry.name == PACKAGE else [{entry.name}]))
    return found


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def examine(title: str, check: Callable[[], str]) -> tuple[bool, str]:
    """Whether a check did not fail, and a line about it. What cannot be tried for want of a package has not failed."""
    try:
        return True, f"  ✓ {title}: {check()}"
    except ModuleNotFoundError as error:
        return True, f"  - {title}: not tried, {error.name} is not installed"
    except Exception as error:  # whatever it is, the reader has to see it
        return False, f"  ✗ {title}: {type(error).__name__}: {error}"


def draw() -> str:
    """Draw one frame of Reacher."""
    import dm_control  # noqa: F401  (tasks turn a missing package into an error of their own)

    from acid import tasks

    task = tasks.make("reacher", size=64)
    try:
        picture, _ = task.reset(seed=0)
    finally:
        task.close()
    if picture.min() == picture.max():
        raise AcidError("the picture is empty")
    return f"a frame of Reacher, {picture.shape[1]} × {picture.shape[0]} px, MUJOCO_GL={os.environ.get('MUJOCO_GL')}"


def plan() -> str:
    """Plan twice with shipped weights. Needs the core packages only."""
    import torch

    from acid import models
    from acid.planning import CEM, Planner, acid_cost
    from acid.verifier import Verifier

    cell = Path(models.__file__).parent.parent / "assets" / "reacher" / "lewm"
    model, verifier = models.load(cell / "model"), Verifier.load(cell / "verifier")
    observation, goal, _ = model.fake_input(batch=1)
    planner = Planner(model, acid_cost(verifier), CEM(samples=30, iterations=3, elites=3), horizon=5)
    first, second = (planner.plan(observation, goal, seed=0) for _ in range(2))
    if not torch.equal(first.actions, second.actions):
        raise AcidError("the same seed gave two different plans")
    return f"Reacher with Le-WM and ACID, {first.seconds['total']:.2f} s, the same plan twice"


CHECKS = {"drawing": draw, "planning": plan}
