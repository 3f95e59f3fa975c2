"""NWM's own CDiT: what a plain reading of the published network gives, or a sentence about what differs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from published_files import CDiT, Shapes, State, add_cdit, save
from tiny_vae import write_vae
from torch import Tensor

from acid import checkpoint, models
from acid.cli import main
from acid.data import EpisodeWriter
from acid.data.poses import SCALER
from acid.errors import CheckpointError
from acid.integrations.published import load_published
from acid.models import DiffusionWorldModel

WIDTH, DEPTH, CONTEXT, WAVES, HEADS = 20, 2, 3, 10, 2  # 20 is no multiple of the three numbers of an action
CHANNELS, PATCH, GRID, SIDE = 4, 2, 4, 32
PLACES = (GRID // PATCH) ** 2
TOLD = {"model": {"generator": {"num_heads": HEADS}}}  # NWM's own files do not tell, but go by the width


def network_state(width: int = WIDTH, depth: int = DEPTH) -> State:
    made = Shapes(0)
    made.add("x_embedder.proj.weight", width, CHANNELS, PATCH, PATCH, std=1.0)
    made.add("x_embedder.proj.bias", width)
    made.add("pos_embed", CONTEXT + 1, PLACES, width)
    add_cdit(made, width, depth, WAVES, ("t_embedder", "time_embedder"))
    made.linear("final_layer.linear", width, PATCH**2 * 2 * CHANNELS)
    return made.state


def file_of(state: State, config: dict[str, Any] | None = TOLD) -> dict[str, Any]:  # type: ignore[assignment]
    """As NWM's training writes it; with a configuration as CompACT's does."""
    averaged = {f"_orig_mod.{name}": value for name, value in state.items()}
    content = {"model": {k: v + 1 for k, v in averaged.items()}, "ema": averaged, "opt": {"state": {}}}
    content |= {"args": argparse.Namespace(config="config/nwm_cdit_xl.yaml", epochs=300), "epoch": 3, "train_steps": 10}
    return content if config is None else content | {"config": config}


@pytest.fixture
def vae(tmp_path: Path) -> str:
    return str(write_vae(tmp_path / "vae"))


def predicted(state: State, noised: Tensor, level: Tensor, actions: Tensor, context: Tensor, elapsed: float) -> Tensor:
    """Maps [M, C, h, w], levels [M], actions [M, 3] and a context [M, T, C, h, w] to [M, 2·C, h, w], as published."""
    network = CDiT(state, WIDTH, HEADS)
    squares, bias, places = state["x_embedder.proj.weight"], state["x_embedder.proj.bias"], state["pos_embed"]

    def embed(maps: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(maps, squares, bias, stride=PATCH).flatten(2).transpose(1, 2)

    condition = network.embed("t_embedder", level.float()) + network.embed_action(actions)
    condition = condition + network.embed("time_embedder", torch.full((len(noised),), elapsed / 128))
    seen = torch.cat([embed(context[:, age]) + places[age] for age in range(CONTEXT)], 1)
    output = network.linear("final_layer.linear", network(embed(noised) + places[CONTEXT], seen, condition))
    drawn = torch.zeros(len(noised), 2 * CHANNELS, GRID, GRID)
    for place in range(PLACES):
        row, column = divmod(place, GRID // PATCH)
        square = output[:, place].reshape(-1, PATCH, PATCH, 2 * CHANNELS)
        for y in range(PATCH):
            for x in range(PATCH):
                drawn[:, :, PATCH * row + y, PATCH * column + x] = square[:, y, x]
    return drawn


def test_it_predicts_what_the_published_network_does(vae: str, tmp_path: Path) -> None:
    state = network_state()
    model = load_published(save(file_of(state), tmp_path / "run", "0100000.pth.tar"), encoder=vae)
    assert isinstance(model, DiffusionWorldModel)
    assert (model.observation_size, model.context, model.config.steps, model.scaler) == (SIDE, CONTEXT, 250, SCALER)
    random = torch.Generator().manual_seed(1)
    noised = torch.randn(4, CHANNELS, GRID, GRID, generator=random)
    context = torch.randn(4, CONTEXT, CHANNELS, GRID, GRID, generator=random)
    actions, level = torch.randn(4, 3, generator=random), torch.tensor([0, 1, 500, 999])

    def cut(maps: Tensor) -> Tensor:
        return torch.nn.functional.pixel_unshuffle(maps, PATCH).flatten(-2).transpose(-1, -2)

    dynamics = model.dynamics
    for elapsed in (1, -64):
        told = dynamics.condition(actions, elapsed)
        seen = dynamics.look(torch.stack([cut(frame) for frame in context.unbind(1)], 1))
        noise, where = dynamics(cut(noised), level, told, seen).chunk(2, -1)
        expected = predicted(state, noised, level, actions, context, elapsed)
        torch.testing.assert_close(noise, cut(expected[:, :CHANNELS]), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(where, cut(expected[:, CHANNELS:]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("width", "depth", "heads"), [(384, 12, 6), (64, 1, 1)])
def test_heads_go_by_the_width(width: int, depth: int, heads: int, vae: str, tmp_path: Path) -> None:
    model = load_published(save(file_of(network_state(width, depth), None), tmp_path, "latest.pth.tar"), encoder=vae)
    assert (model.config.predictor.width, model.config.predictor.heads) == (width, heads)


def test_a_cell_is_converted_loaded_and_fitted(vae: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, cell = tmp_path / "drives.h5", tmp_path / "cell"
    random = np.random.default_rng(0)
    with EpisodeWriter(data) as writer:
        for _ in range(4):
            pose = np.cumsum(random.normal(0.1, 0.05, (9, 3)), 0)
            pixels = random.integers(0, 256, (9, SIDE, SIDE, 3), np.uint8)
            writer.write({"pixels": pixels, "pose": pose, "action": pose})
    published = save(file_of(network_state()), tmp_path / "run", "0000010.pth.tar")
    chosen = ["--data", str(data), "--held-out", "0.25", "--encoder", vae, "--denoising-steps", "2"]
    main(["convert", str(published), *chosen, "--out", str(cell / "model")])
    made = models.load(cell / "model")
    assert isinstance(made, DiffusionWorldModel)
    told = checkpoint.load(cell / "model").metadata
    assert (told["model"], told["recipe"]["weights"]) == ("nwm-diffusion", "0000010.pth.tar")
    assert (made.config.steps, made.config.encoder.source) == (2, vae)
    fit = ["--task", "drives", "--data", str(data), "--out", str(cell), "--steps", "2", "--batch-size", "4"]
    main(["train", "verifier", "nwm-diffusion", *fit, "--channels", "4", "--network.width", "12", "--device", "cpu"])
    assert "wrote" in capsys.readouterr().out
    assert checkpoint.load(cell / "verifier").metadata["built_on"] == {"model": checkpoint.fingerprint(cell / "model")}


DAMAGE: dict[str, tuple[Callable[[State], Any], str]] = {
    "lacking": (lambda s: s.pop("t_embedder.mlp.2.bias"), r"its weights lack 't_embedder\.mlp\.2\.bias'"),
    "more": (lambda s: s.update({"extra.weight": torch.zeros(1)}), r"have extra\.weight, which ours has not"),
    "sigma": (
        lambda s: s.update({"final_layer.linear.weight": torch.zeros(16, WIDTH)}),
        r"final_layer\.linear\.weight has 16 numbers a square, not those of a noise and its variance",
    ),
    "places": (lambda s: s.update({"pos_embed": torch.zeros(4, 5, WIDTH)}), r"positions \[4, 5, 20\] are not those"),
    "frames": (lambda s: s.update({"pos_embed": s["pos_embed"][:1]}), r"positions \[1, 4, 20\] are not those"),
    "channels": (
        lambda s: s.update({"x_embedder.proj.weight": torch.zeros(WIDTH, 16, 2, 2)}),
        "it denoises latents of 16 channels and side 4, and those of the VAE in .* have 4 and 4",
    ),
    "flat": (lambda s: s.update({"x_embedder.proj.weight": torch.zeros(3)}), r"has the shape \[3\]"),
    "parts": (lambda s: s.update({"blocks.0.adaLN_modulation.1.weight": torch.zeros(7, WIDTH)}), "has an absurd shape"),
    "nan": (lambda s: s["pos_embed"].fill_(torch.nan), "pos_embed hold NaN or infinite numbers"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_another_network_is_refused(kind: str, vae: str, tmp_path: Path) -> None:
    state = network_state()
    damage, told = DAMAGE[kind]
    damage(state)
    with pytest.raises(CheckpointError, match=told):
        load_published(save(file_of(state), tmp_path / "run", "latest.pth.tar"), encoder=vae)


def test_layers_that_do_not_go_with_a_width_are_refused(vae: str, tmp_path: Path) -> None:
    folder = save(file_of(network_state(384, 1), None), tmp_path / "run", "latest.pth.tar")
    with pytest.raises(CheckpointError, match="it has 1 layers of width 384, and NWM's have 12"):
        load_published(folder, encoder=vae)


def test_what_belongs_together_is_checked(vae: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(file_of(network_state()), tmp_path / "run", "latest.pth.tar")
    with pytest.raises(CheckpointError, match=r"is not in the file: fetch it once .* as encoder \(--encoder FOLDER\)"):
        load_published(folder)
    with pytest.raises(CheckpointError, match=r"nowhere has no config\.json, so it is not a folder of 'sd-vae'"):
        load_published(folder, encoder="nowhere")
    with pytest.raises(CheckpointError, match="leave the tokenizer out, and name the VAE's folder as encoder"):
        load_published(folder, encoder=vae, tokenizer="tokens")
    with pytest.raises(CheckpointError, match="needs context, squares and 2 to 1000 steps"):
        load_published(folder, encoder=vae, denoising_steps=1)
    with pytest.raises(CheckpointError, match="whose action statistics are known"):
        load_published(folder, encoder=vae, action_scaler="identity")
    fixture = Path(__file__).parent / "fixtures" / "lewm"
    with pytest.raises(CheckpointError, match="holds no NWM on latents of a VAE: leave denoising_steps out"):
        load_published(fixture, action_scaler="identity", denoising_steps=5)
    with pytest.raises(SystemExit):
        main(["convert", str(folder), "--out", "nowhere", "--denoising-steps", "5"])
    assert "--denoising-steps is for a world model, which needs --data too" in capsys.readouterr().err
