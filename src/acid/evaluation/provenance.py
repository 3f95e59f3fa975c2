"""What a row needs to be believed later: which code, which weights, which libraries."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from acid.errors import CheckpointError

_LIBRARIES = ("torch", "numpy", "mujoco")
_CHECKPOINT_FILES = ("config.json", "model.safetensors")


def revision() -> str:
    """The git revision of this package, marked `-dirty` if its code differs from it, or `unknown` outside git.

    Shipped weights do not count: rows carry fingerprints of those they used.
    """
    folder = Path(__file__).resolve().parent.parent
    try:
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        dirty = _git(folder, "status", "--porcelain", "--", ".", ":!assets")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}-dirty" if dirty else head


def versions() -> dict[str, str]:
    """The installed versions that decide what a number comes out as."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def fingerprint(folder: str | Path) -> str:
    """Twelve hexadecimal digits that change whenever a checkpoint's weights or configuration change."""
    digest = hashlib.sha256()
    for name in _CHECKPOINT_FILES:
        path = Path(folder) / name
        if not path.is_file():
            raise CheckpointError(f"{folder} is not a checkpoint folder: it has no {name}")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Provenance:
    """Written into every row. `checkpoints` maps a role (model, verifier, policy) to its fingerprint."""

    checkpoints: Mapping[str, str] = field(default_factory=dict)
    revision: str = field(default_factory=revision)
    versions: Mapping[str, str] = field(default_factory=versions)


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
