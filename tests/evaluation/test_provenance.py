from __future__ import annotations

import pytest

from acid.errors import CheckpointError
from acid.evaluation import Provenance, fingerprint


def checkpoint(folder, weights: bytes = b"w", config: str = "{}"):
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text(config)
    return folder


def test_fingerprints_follow_the_contents_not_the_place(tmp_path):
    one = fingerprint(checkpoint(tmp_path / "one"))
    assert one == fingerprint(checkpoint(tmp_path / "two"))
    assert one != fingerprint(checkpoint(tmp_path / "one", weights=b"x"))
    assert one != fingerprint(checkpoint(tmp_path / "one", config='{"a": 1}'))


def test_a_folder_without_weights_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        fingerprint(tmp_path)


def test_provenance_knows_code_and_libraries():
    made = Provenance()
    assert made.revision
    assert {"python", "torch", "numpy"} <= made.versions.keys()
