"""What a row was made with: which code, which weights, which libraries."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_LIBRARIES = ("torch", "numpy", "mujoco")


@functools.cache
def revision() -> str:
    """The git revision of this package, marked `-dirty` if its code differs from it.

    Outside a repository that tracks this file, the version of the package. Shipped weights do not count as code: rows
    carry fingerprints of those they used.
    """
    folder = Path(__file__).resolve().parent.parent
    try:
        _git(folder, "ls-files", "--error-unmatch", __file__)
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        dirty = _git(folder, "status", "--porcelain", "--", ".", ":!assets")
    except (OSError, subprocess.CalledProcessError):
        return f"version {importlib.metadata.version('acid-planning')}"
    return f"{head}-dirty" if dirty else head


@functools.cache
def versions() -> Mapping[str, str]:
    """The installed versions that decide what a number comes out as."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Provenance:
    """Written into every row. `checkpoints` maps a part (model, verifier, policy) to its fingerprint."""

    checkpoints: Mapping[str, str] = field(default_factory=dict)
    revision: str = field(default_factory=revision)
    versions: Mapping[str, str] = field(default_factory=versions)


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
