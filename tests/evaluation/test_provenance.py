"""A row knows which code, which libraries and which weights made it."""

from __future__ import annotations

import subprocess

from acid.evaluation import Provenance, provenance


def test_provenance_knows_code_and_libraries():
    made = Provenance()
    assert made.revision
    assert {"python", "torch", "numpy"} <= made.versions.keys()
    assert made.checkpoints == {}


def test_outside_a_repository_the_version_of_the_package_is_the_revision(monkeypatch):
    def fail(folder, *arguments):
        raise subprocess.CalledProcessError(128, "git")

    monkeypatch.setattr(provenance, "_git", fail)
    assert provenance.revision.__wrapped__().startswith("version 0.")


def test_a_repository_around_the_installation_is_not_its_revision(tmp_path, monkeypatch):
    installed = tmp_path / "venv" / "acid" / "evaluation" / "provenance.py"
    installed.parent.mkdir(parents=True)
    installed.touch()
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "theirs"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    monkeypatch.setattr(provenance, "__file__", str(installed))
    assert provenance.revision.__wrapped__().startswith("version 0.")


def test_changes_that_are_not_committed_are_marked(monkeypatch):
    def git(folder, *arguments):
        return {"rev-parse": "abc", "status": " M play.py"}.get(arguments[0], "")

    monkeypatch.setattr(provenance, "_git", git)
    assert provenance.revision.__wrapped__() == "abc-dirty"
