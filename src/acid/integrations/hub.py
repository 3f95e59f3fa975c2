"""Cells on the Hugging Face hub: world model, action statistics, verifier, policy and card in one repository.

    cell = PretrainedCell.from_pretrained("someone/reacher-lewm", revision="<commit>", download=True)
    plan = cell.planner().plan(observation, goal)

A repository is the folder of a cell: `model/`, `verifier/` and so on, each with `model.safetensors` and `config.json`,
and a `config.json` that names them. Nothing else is fetched, and nothing that is fetched is executed.
"""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from acid import checkpoint, models
from acid.errors import CheckpointError, is_number, need_package, some
from acid.evaluation import Cell, SearchSpec
from acid.evaluation.kits import kit_of
from acid.files import clipped, read_json_object, write_text, writing
from acid.planning import CEM, Adaptive, Cost, Planner, Search
from acid.planning.bounds import Limit
from acid.verifier import Policy, Verifier

CONFIG, CARD, LAMBDA = "config.json", "README.md", "lambda.json"
FILES = (checkpoint.WEIGHTS, checkpoint.CONFIG)  # of a part
PARTS = ("tokenizer", "model", "verifier", "policy", "decoder", "readout")
PATTERNS = [CONFIG, CARD, LAMBDA, *(f"{part}/{file}" for part in PARTS for file in FILES)]
TAGS = ("world-model", "planning", "model-predictive-control", "inverse-dynamics", "robotics", "acid")
USUAL_LAMBDA = 0.07
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class PretrainedCell:
    """A cell in a folder, ready to plan with; its parts are loaded when they are first used."""

    folder: Path
    device: str = "cpu"
    lambdas: Mapping[str, float] = field(default_factory=dict)  # chosen for this cell, by condition

    def __post_init__(self) -> None:
        if not (self.folder / "model").is_dir():
            raise CheckpointError(f"{self.folder} is not the folder of a cell: it has no subfolder 'model'")

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        download: bool = False,
        cache_dir: str | Path | None = None,
        token: str | None = None,
        device: str = "cpu",
    ) -> PretrainedCell:
        """A cell from a folder, or from a repository of the hub at one commit.

        Without `download` only what was fetched before is used, and nothing is asked of the network.
        """
        if Path(name).is_dir():
            if revision is not None:
                raise CheckpointError(f"{name} is a folder here and has no revision {revision!r}; leave it out")
            folder = Path(name)
        else:
            folder = _fetched(str(name), revision, download=download, cache_dir=cache_dir, token=token)
        _check(folder)
        return cls(folder, device, _lambdas(folder))

    @classmethod
    def shipped(cls, task: str, model: str, device: str = "cpu") -> PretrainedCell:
        """One of the cells that are part of this package."""
        cell = Cell(task, model)
        return cls(cell.root, device, cell.lambdas)

    @cached_property
    def model(self) -> Any:
        return models.load(self.folder / "model", device=self.device)

    @cached_property
    def verifier(self) -> Verifier:
        return Verifier.load(self.folder / "verifier", device=self.device)

    @cached_property
    def policy(self) -> Policy:
        return Policy.load(self.folder / "policy", device=self.device)

    @cached_property
    def about(self) -> dict[str, Any]:
        """What the world model's checkpoint tells of itself: task, kind of model, data, recipe."""
        return checkpoint.load(self.folder / "model").metadata

    @property
    def kind(self) -> str:
        """Of world model."""
        return str(self.about.get("model") or checkpoint.load(self.folder / "model").kind)

    @property
    def lam(self) -> float:
        """The λ of ACID that was chosen for this cell, or the usual one."""
        return self.lambdas.get("acid", USUAL_LAMBDA)

    def planner(
        self,
        search: Search | None = None,
        *,
        horizon: int = 5,
        lam: float | None = None,
        bounds: tuple[Limit, Limit] | None = None,
    ) -> Planner:
        """ACID with this cell's parts; λ = 0 plans without the verifier."""
        kit = kit_of(self.kind)(self.model, self.verifier, checkpoint.load(self.folder / "verifier").metadata)
        cost = Cost([kit.goal(), kit.consistency(Adaptive(self.lam if lam is None else lam))])
        spec = SearchSpec.of(search or CEM(), horizon=horizon, candidates=kit.candidates[0], repeats=kit.repeats)
        return kit.planner(cost, spec, bounds=bounds)

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the cell as a repository has it: parts, description, card with tags. The folder must be new."""
        target = Path(folder)
        if target.exists() and any(target.iterdir()):
            raise CheckpointError(f"{target} is not empty; name a new folder")
        parts = [part for part in PARTS if (self.folder / part).is_dir()]
        for part in parts:
            checkpoint.load(self.folder / part)  # nothing damaged is passed on
            with writing(target, CheckpointError):
                (target / part).mkdir(parents=True)
                for file in FILES:
                    shutil.copyfile(self.folder / part / file, target / part / file)
        described = {
            "library_name": "acid-planning",
            "version": metadata.version("acid-planning"),
            "task": self.about.get("task"),
            "model": self.kind,
            "parts": {part: checkpoint.fingerprint(target / part) for part in parts},
        }
        write_text(target / CONFIG, json.dumps(described, indent=2) + "\n", CheckpointError)
        if self.lambdas:
            write_text(target / LAMBDA, json.dumps(dict(self.lambdas), indent=2) + "\n", CheckpointError)
        write_text(target / CARD, self._card(parts), CheckpointError)
        return target

    def push_to_hub(
        self, repo_id: str, *, private: bool = True, token: str | None = None, message: str = "Upload of a cell"
    ) -> str:
        """Upload the cell, private unless said otherwise; the commit, for `from_pretrained(repo_id, revision=...)`."""
        hub = _hub()
        api = hub.HfApi(token=token)
        with tempfile.TemporaryDirectory() as scratch:
            folder = self.save_pretrained(Path(scratch) / "cell")
            try:
                api.create_repo(repo_id, private=private, exist_ok=True)
                done = api.upload_folder(
                    repo_id=repo_id,
                    folder_path=folder,
                    commit_message=message,
                    allow_patterns=PATTERNS,
                    delete_patterns=PATTERNS,  # of an earlier cell; what else is in the repository stays
                )
            except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
                raise CheckpointError(f"{repo_id} could not be uploaded: {_first_line(error)}") from error
        return str(done.oid)

    def _card(self, parts: list[str]) -> str:
        """The cell's own card, or a short one, under the tags by which people search."""
        own = self.folder / CARD
        told = own.read_text(encoding="utf-8") if own.is_file() else ""
        body = re.sub(r"\A---\n.*?\n---\n", "", told, flags=re.DOTALL).strip()
        task = self.about.get("task")
        body = body or f"# {self.kind} for {task}\n\nParts: {', '.join(parts)}."
        tags = [*TAGS, self.kind, *([str(task)] if task else [])]
        use = (
            "## Use\n\n```python\nfrom acid.integrations.hub import PretrainedCell\n\n"
            'cell = PretrainedCell.from_pretrained("OWNER/NAME", revision="COMMIT", download=True)\n'
            "plan = cell.planner().plan(observation, goal)\n```\n"
        )
        head = ["---", "library_name: acid-planning", "license: mit", "pipeline_tag: robotics", "tags:"]
        return "\n".join([*head, *(f"- {tag}" for tag in tags), "---", "", body, "", use])


def _fetched(name: str, revision: str | None, *, download: bool, cache_dir: Any, token: str | None) -> Path:
    """The folder of a repository's files at one commit, from the cache or the hub."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise CheckpointError(f"{name!r} is neither a folder here nor the name of a repository, OWNER/NAME")
    if revision is None or not _COMMIT.fullmatch(revision):
        raise CheckpointError(
            f"{name} needs the revision of one commit, 40 hexadecimal digits, so that what is loaded cannot change; "
            f"got {revision!r}"
        )
    hub = _hub()
    try:
        return Path(
            hub.snapshot_download(
                name,
                revision=revision,
                cache_dir=cache_dir,
                token=token,
                local_files_only=not download,
                allow_patterns=PATTERNS,
            )
        )
    except hub.errors.LocalEntryNotFoundError as error:
        todo = "check the connection" if download else "pass download=True to fetch it"
        raise CheckpointError(f"{name} at {revision} is not in the local cache; {todo}") from error
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        raise CheckpointError(f"{name} at {revision} could not be fetched: {_first_line(error)}") from error


def _check(folder: Path) -> None:
    """The parts that the description names must be there, unchanged; a folder without description is a plain cell."""
    file = folder / CONFIG
    if not file.is_file():
        return
    parts = read_json_object(file, CheckpointError).get("parts")
    if not isinstance(parts, dict):
        raise CheckpointError(f"{file} does not describe a cell: its parts are {clipped(parts)}; fetch it again")
    wrong = [
        part
        for part, told in parts.items()
        if part not in PARTS or not (folder / part).is_dir() or checkpoint.fingerprint(folder / part) != told
    ]
    if wrong:
        raise CheckpointError(f"{folder} lacks, or has another, {some(wrong)} than its {CONFIG} tells; fetch it again")


def _lambdas(folder: Path) -> dict[str, float]:
    file = folder / LAMBDA
    if not file.is_file():
        return {}
    found = {name: value for name, value in read_json_object(file, CheckpointError).items() if name != "reason"}
    if wrong := [name for name, value in found.items() if not is_number(value) or not 0 <= value < math.inf]:
        raise CheckpointError(f"{file} must hold one number λ by condition, got {clipped({wrong[0]: found[wrong[0]]})}")
    return {name: float(value) for name, value in found.items()}


def _hub() -> Any:
    hub = need_package("huggingface_hub", "hub", "the hub", CheckpointError)
    importlib.import_module("huggingface_hub.errors")
    return hub


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
