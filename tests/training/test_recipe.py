"""Recipes are values by name; a world model that is new to them has one as well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from training_toys import small

from acid import checkpoint, models
from acid.errors import AcidError, UnknownNameError
from acid.loop import LoopConfig
from acid.models.lewm import KIND, LeWMLossConfig
from acid.training import PARTS, fit, recipe

CELLS = [(part, model) for model, kind in models.KINDS.items() for part in kind.parts]


@pytest.mark.parametrize(("part", "model"), [cell for cell in CELLS if "paper" in models.KINDS[cell[1]].presets])
def test_every_published_part_has_a_recipe_of_either_scale(part: str, model: str) -> None:
    lite, paper = recipe(part, model), recipe(part, model, "paper")
    assert (lite.part, lite.model, lite.scale, paper.scale) == (part, model, "lite", "paper")
    assert lite.loop.steps < paper.loop.steps or part == "readout"
    assert lite.network != paper.network


@pytest.mark.parametrize("model", ["lewm", "pldm"])
def test_a_model_with_shapes_is_trained_like_the_usual_one_at_our_scale_alone(model: str) -> None:
    shapes = f"{model}-shapes"
    assert recipe("model", shapes).network.shape_size == 12
    assert recipe("model", shapes).loss == recipe("model", model).loss
    for part in models.KINDS[shapes].parts:
        with pytest.raises(UnknownNameError, match="unknown scale 'paper'; known: 'lite'"):
            recipe(part, shapes, "paper")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("modle", "lewm", "lite"), "unknown part of a cell 'modle'; did you mean 'model'"),
        (("model", "le-wm", "lite"), "unknown world model 'le-wm'; did you mean 'lewm'"),
        (("model", "lewm", "light"), "unknown scale 'light'; did you mean 'lite'"),
        (("verifier", "lewm", "light"), "unknown scale 'light'; did you mean 'lite'"),
    ],
)
def test_unknown_names_get_a_suggestion(names: tuple[str, str, str], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        recipe(*names)


def test_a_part_that_a_cell_does_not_have_is_refused() -> None:
    with pytest.raises(AcidError, match="a cell of nwm has no readout; its parts are tokenizer, model, verifier"):
        recipe("readout", "nwm")
    with pytest.raises(AcidError, match="a cell of lewm has no tokenizer"):
        recipe("tokenizer", "lewm")


def test_a_new_world_model_is_one_line_and_trains(blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    presets = {"tiny": lambda size: replace(KIND.presets["lite"](size), latent_size=8)}
    monkeypatch.setitem(models.KINDS, "mine", replace(KIND, presets=presets))
    found = recipe("model", "mine", "tiny")
    assert (found.loss, found.loop, found.network.latent_size) == (LeWMLossConfig(), LoopConfig(), 8)
    short = replace(found.loop, steps=2, batch_size=4)
    fit(replace(found, loop=short, loss=LeWMLossConfig(projections=8)), blobs, tmp_path, device="cpu")
    assert models.load(tmp_path / "model").config.latent_size == 8
    fit(replace(recipe("verifier", "mine", "tiny"), loop=small("verifier", "lewm").loop), blobs, tmp_path, device="cpu")
    assert checkpoint.load(tmp_path / "verifier").metadata["scale"] == "tiny"
    assert set(PARTS) == {part for part, _ in CELLS}
