"""Cells on the hub: written, described, uploaded and read back, with a folder and a pretended hub."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import huggingface_hub.errors
import pytest
import torch

from acid import CEM, checkpoint
from acid.errors import CheckpointError
from acid.integrations import hub
from acid.integrations.hub import PretrainedCell

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cell() -> PretrainedCell:
    return PretrainedCell.shipped("reacher", "lewm")


@pytest.fixture
def saved(cell: PretrainedCell, tmp_path: Path) -> Path:
    return cell.save_pretrained(tmp_path / "saved")


def test_a_saved_cell_plans_as_before(cell: PretrainedCell, saved: Path) -> None:
    back = PretrainedCell.from_pretrained(saved)
    assert back.lam == cell.lam == 0.2
    now, goal = torch.randint(256, (2, 1, 64, 64, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    search = CEM(samples=16, iterations=2, elites=4)
    first, second = (each.planner(search, horizon=3).plan(now, goal, seed=1) for each in (cell, back))
    assert torch.equal(first.actions, second.actions)
    assert first.consistency is not None
    assert first.env_actions is not None
    assert not torch.equal(first.actions, cell.planner(search, horizon=3, lam=0).plan(now, goal, seed=1).actions)
    assert back.policy.scaler == cell.model.scaler


def test_only_weights_and_descriptions_are_written(saved: Path) -> None:
    files = {str(file.relative_to(saved)) for file in saved.rglob("*") if file.is_file()}
    parts = {f"{part}/{name}" for part in ("model", "verifier", "policy") for name in hub.FILES}
    assert parts | {"README.md", "config.json", "lambda.json"} <= files <= set(hub.PATTERNS)
    described = json.loads((saved / "config.json").read_text())
    assert (described["task"], described["model"]) == ("reacher", "lewm")
    assert described["parts"]["model"] == checkpoint.fingerprint(saved / "model")


def test_the_card_has_the_tags_people_search_by(saved: Path, tmp_path: Path) -> None:
    card = (saved / "README.md").read_text()
    head = card.split("---\n")[1]
    assert {"library_name: acid-planning", "pipeline_tag: robotics", "- world-model", "- lewm", "- reacher"} <= set(
        head.splitlines()
    )
    assert "# Le-WM lite on Reacher" in card
    again = PretrainedCell.from_pretrained(saved).save_pretrained(tmp_path / "again")
    assert (again / "README.md").read_text().count("library_name") == 1  # one head, however often it is saved


def test_a_folder_that_is_not_as_described_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not empty; name a new folder"):
        PretrainedCell.from_pretrained(saved).save_pretrained(saved)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot write .*file/cell"):
        PretrainedCell.from_pretrained(saved).save_pretrained(tmp_path / "file" / "cell")
    with pytest.raises(CheckpointError, match="is a folder here and has no revision"):
        PretrainedCell.from_pretrained(saved, revision=COMMIT)
    with pytest.raises(CheckpointError, match="has no subfolder 'model'"):
        PretrainedCell.from_pretrained(tmp_path)
    shutil.copytree(saved / "policy", saved / "verifier", dirs_exist_ok=True)
    with pytest.raises(CheckpointError, match=r"lacks, or has another, verifier than its config\.json tells"):
        PretrainedCell.from_pretrained(saved)
    (saved / "config.json").write_text('{"parts": 3}')
    with pytest.raises(CheckpointError, match=r"config\.json does not describe a cell: its parts are 3"):
        PretrainedCell.from_pretrained(saved)


class PretendedHub:
    """Keeps what is uploaded in a folder; every call must suit the real package."""

    errors = sys.modules["huggingface_hub.errors"]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[dict[str, Any]] = []
        self.private: bool | None = None

    def HfApi(self, **options: Any) -> PretendedHub:
        inspect.signature(huggingface_hub.HfApi).bind(**options)
        return self

    def create_repo(self, repo_id: str, **options: Any) -> None:
        inspect.signature(huggingface_hub.HfApi.create_repo).bind(None, repo_id, **options)
        self.private = options["private"]

    def upload_folder(self, **options: Any) -> Any:
        inspect.signature(huggingface_hub.HfApi.upload_folder).bind(None, **options)
        shutil.copytree(options["folder_path"], self.folder)
        return SimpleNamespace(oid=COMMIT)

    def snapshot_download(self, repo_id: str, **options: Any) -> str:
        inspect.signature(huggingface_hub.snapshot_download).bind(repo_id, **options)
        self.asked.append(options)
        if options["local_files_only"]:
            raise self.errors.LocalEntryNotFoundError("not here")
        return str(self.folder)


def test_up_and_down_again(cell: PretrainedCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = PretendedHub(tmp_path / "remote")
    monkeypatch.setattr(hub, "_hub", lambda: pretended)
    assert cell.push_to_hub("someone/reacher-lewm") == COMMIT
    assert pretended.private is True
    with pytest.raises(CheckpointError, match=f"{COMMIT} is not in the local cache; pass download=True"):
        PretrainedCell.from_pretrained("someone/reacher-lewm", revision=COMMIT)
    back = PretrainedCell.from_pretrained("someone/reacher-lewm", revision=COMMIT, download=True)
    assert [asked["local_files_only"] for asked in pretended.asked] == [True, False]
    assert pretended.asked[1]["allow_patterns"] == hub.PATTERNS
    assert checkpoint.fingerprint(back.folder / "model") == checkpoint.fingerprint(cell.folder / "model")


def test_what_may_change_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for revision in (None, "main", "v1.0", COMMIT[:7]):
        with pytest.raises(CheckpointError, match="needs the revision of one commit, 40 hexadecimal digits"):
            PretrainedCell.from_pretrained("someone/reacher-lewm", revision=revision)
    with pytest.raises(CheckpointError, match="neither a folder here nor the name of a repository"):
        PretrainedCell.from_pretrained("no/such/folder", revision=COMMIT)


def test_without_a_connection_the_sentence_says_so(tmp_path: Path) -> None:
    """The real package, which finds nothing in an empty cache and is not allowed to ask."""
    with pytest.raises(CheckpointError, match="is not in the local cache; pass download=True to fetch it"):
        PretrainedCell.from_pretrained("someone/reacher-lewm", revision=COMMIT, cache_dir=tmp_path)
