"""Which episodes of a dataset are trained on, written once beside it, so that every part of a cell keeps to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acid.data.episodes import Episodes
from acid.data.split import fit_scaler, split
from acid.errors import DataError
from acid.files import read_json_object, write_text
from acid.types import ActionScaler

SUFFIX = ".split.json"  # in place of the dataset's
HELD_OUT, FRAMESKIP, SEED = 0.1, 1, 0  # unless something else is asked for
DIGESTED_FRAMES = 16
_NAMES = ("held_out", "seed", "episodes", "frameskip", "fingerprint")  # what makes two partitions the same


@dataclass(frozen=True, eq=False)
class Partition:
    """Episode numbers, each in exactly one of the two parts, and the action statistics of the training part."""

    train: np.ndarray
    held_out: np.ndarray
    held_out_share: float
    seed: int
    frameskip: int  # environment steps per model step
    scaler: ActionScaler
    fingerprint: str  # of the dataset

    def as_dict(self) -> dict[str, Any]:
        """JSON values, from which the numbers of the episodes follow."""
        return {
            "held_out": self.held_out_share,
            "seed": self.seed,
            "episodes": len(self.train) + len(self.held_out),
            "frameskip": self.frameskip,
            "scaler": asdict(self.scaler) | {"mean": list(self.scaler.mean), "std": list(self.scaler.std)},
            "fingerprint": self.fingerprint,
        }

    def check(self, recorded: Mapping[str, Any], what: str) -> None:
        """A DataError unless `recorded`, by the checkpoint called `what`, is this partition of this dataset.

        A checkpoint whose dataset is not known records None as its fingerprint, which is not compared.
        """
        ours = self.as_dict()
        for name in _NAMES:
            if recorded.get(name) != ours[name] and not (name == "fingerprint" and recorded.get(name) is None):
                raise DataError(
                    f"{what} was trained with {name} {recorded.get(name)}, but the dataset here has {ours[name]}; "
                    "use the dataset that it was trained on, or train it again"
                )


def partition(episodes: Episodes, *, held_out: float | None = None, frameskip: int | None = None) -> Partition:
    """The partition that is written beside the dataset; it is made and written where there is none.

    `held_out` is a share of the episodes. Asking for something else than what is written is an error.
    """
    path = episodes.path.with_suffix(SUFFIX)
    content = fingerprint(episodes)
    if not path.exists():
        share, skip = HELD_OUT if held_out is None else held_out, FRAMESKIP if frameskip is None else frameskip
        parts = split(len(episodes), share, SEED)
        scaler = fit_scaler(episodes, parts.train, skip)
        made = Partition(parts.train, parts.held_out, share, SEED, skip, scaler, content)
        _write(path, made)
        return made
    stored = _read(path, len(episodes))
    if stored.fingerprint != content:
        raise DataError(
            f"{path} was written for another dataset than {episodes.path} is now; remove it, and train again what was "
            "trained on that dataset"
        )
    for name, asked, found in (
        ("held_out", held_out, stored.held_out_share),
        ("frameskip", frameskip, stored.frameskip),
    ):
        if asked is not None and asked != found:
            raise DataError(
                f"{path} says {name} {found}, not {asked}; ask for {found}, or remove the file and train every part of "
                "the cell again"
            )
    return stored


def fingerprint(episodes: Episodes) -> str:
    """Changes with the attributes, the lengths, any action and any of a few frames, spread over the dataset."""
    found = hashlib.sha256(json.dumps(episodes.attributes, sort_keys=True).encode())
    rows = np.arange(episodes.rows)
    found.update(episodes.lengths.tobytes() + episodes.offsets.tobytes())
    found.update(episodes.read("action", rows).tobytes())
    if "pixels" in episodes.columns:
        few = np.unique(np.linspace(0, episodes.rows - 1, DIGESTED_FRAMES).astype(np.int64))
        found.update(episodes.read("pixels", few).tobytes())
    return found.hexdigest()[:16]


def _read(path: Path, episodes: int) -> Partition:
    stored = read_json_object(path, remedy="remove it to split the dataset anew")
    try:
        if stored["episodes"] != episodes:
            raise DataError(f"it is of {stored['episodes']} episodes, but the dataset has {episodes}")
        parts = split(episodes, stored["held_out"], stored["seed"])
        statistics = stored["scaler"]
        scaler = ActionScaler(tuple(statistics["mean"]), tuple(statistics["std"]), statistics["frameskip"])
        known = (stored["held_out"], stored["seed"], stored["frameskip"], scaler, stored["fingerprint"])
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} is damaged ({error!r}); remove it to split the dataset anew") from error
    return Partition(parts.train, parts.held_out, *known)


def _write(path: Path, made: Partition) -> None:
    write_text(path, json.dumps(made.as_dict(), indent=2) + "\n")
