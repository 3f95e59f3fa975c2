"""The same recipe gives the same weights as ever: a few numbers of what three steps of each part lead to.

What is compared is the sum of the first weight of every tensor, which other machines round differently, but which any
other seed, batch, learning rate or order of random numbers moves by far more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import training_toys as toys

from acid import checkpoint
from acid.training import fit

GOLDEN = {
    "lewm/model": 33.4904,
    "lewm/verifier": 5.3501,
    "lewm/policy": 5.8029,
    "lewm/decoder": -2.6180,
    "pldm/model": 33.4635,
    "dinowm/model": 5.2834,
    "dinowm/verifier": 7.2648,
    "dinowm/decoder": -0.0328,
    "dinowm/readout": 0.9192,
    "nwm/tokenizer": 10.3073,
    "nwm/model": 13.5055,
    "nwm/verifier": 5.0034,
    "nwm/policy": 3.8691,
}


def signature(folder: Path) -> float:
    return sum(float(value.flatten()[0]) for value in checkpoint.load(folder).state.values())


@pytest.mark.parametrize("model", ["lewm", "pldm", "dinowm", "nwm"])
def test_weights_are_as_ever(model: str, tmp_path: Path, patches, difference, points) -> None:
    data = {"dinowm": toys.noise, "nwm": toys.drives}.get(model, toys.blobs)(tmp_path / "data.h5")
    found = {}
    for name in (name for name in GOLDEN if name.startswith(model)):
        part = name.split("/")[1]
        found[name] = signature(fit(toys.small(part, model), data, tmp_path / "cell", device="cpu"))
    assert found == pytest.approx({name: GOLDEN[name] for name in found}, abs=5e-3)
