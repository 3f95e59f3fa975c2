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


def test_changes_that_are_not_committed_are_marked(monkeypatch):
    def git(folder, *arguments):
        return {"rev-parse": "abc", "status": " M play.py"}.get(arguments[0], "")

    monkeypatch.setattr(provenance, "_git", git)
    assert provenance.revision.__wrapped__() == "abc-dirty"
