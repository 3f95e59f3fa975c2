"""DINO-WM's published files: the same predictions as the published network, or a sentence about what differs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from acid import models
from acid.cli import main
from acid.data import Episodes, EpisodeWriter, read_observation
from acid.errors import CheckpointError, DataError, ShapeError
from acid.integrations.published import convert, load_published, read_config
from acid.models import DinoWorldModel
from acid.planning import CEM, Cost, PartDistances, Parts, Planner, acid_cost
from acid.verifier import Verifier

SIDE, FRAMES, DEPTH, HEADS, HEAD = 3, 2, 2, 3, 5  # tokens along a side, and the sizes of the predictor
TOKENS, FEATURES, ACTION, PROPRIO = SIDE**2, 384, 4, 3


class Attention(nn.Module):
    """With the names and the arithmetic of the published layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads, self.scale = HEADS, HEAD**-0.5
        self.norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * HEADS * HEAD, bias=False)
        self.to_out = nn.Sequential(nn.Linear(HEADS * HEAD, width), nn.Dropout(0.1))
        frame = torch.arange(FRAMES).repeat_interleave(TOKENS)
        self.bias = (frame[:, None] >= frame).float()[None, None]  # a plain attribute, not a buffer

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for part in self.to_qkv(self.norm(x)).chunk(3, -1))
        mask = self.bias[..., : x.shape[1], : x.shape[1]]
        scores = (q @ k.transpose(-1, -2) * self.scale).masked_fill(mask == 0, -torch.inf)
        return self.to_out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 7), nn.GELU(), nn.Dropout(0.1), nn.Linear(7, width), nn.Dropout(0.1)
        )


class Transformer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(nn.ModuleList([Attention(width), FeedForward(width)]) for _ in range(DEPTH))


class ViTPredictor(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, FRAMES * TOKENS, width))
        self.dropout = nn.Dropout(0.0)
        self.transformer = Transformer(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pos_embedding[:, : x.shape[1]]
        for attention, feed_forward in self.transformer.layers:  # type: ignore[misc]
            x = attention(x) + x
            x = feed_forward.net(x) + x
        return self.transformer.norm(x)


class ProprioceptiveEmbedding(nn.Module):
    def __init__(self, size: int, width: int = 10, steps: int = 1) -> None:
        super().__init__()
        self.patch_embed = nn.Conv1d(size, width, steps, steps)

    def forward(self, x: Tensor) -> Tensor:
        return self.patch_embed(x.permute(0, 2, 1)).permute(0, 2, 1)


PUBLISHED = {
    "models.vit": [Attention, FeedForward, Transformer, ViTPredictor],
    "models.proprio": [ProprioceptiveEmbedding],
}


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any], Path], Path]:
    """Saves modules under the names of the publisher's classes, which are gone when the file is read."""

    def save(content: dict[str, Any], folder: Path) -> Path:
        with monkeypatch.context() as names:
            names.setitem(sys.modules, "models", ModuleType("models"))
            for module, classes in PUBLISHED.items():
                names.setitem(sys.modules, module, ModuleType(module))
                for kind in classes:
                    names.setattr(kind, "__module__", module)
                    setattr(sys.modules[module], kind.__name__, kind)
            (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
            torch.save(content, folder / "checkpoints" / "model_latest.pth")
        assert "models.vit" not in sys.modules
        return folder

    return save


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory: pytest.TempPathFactory) -> str:
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    config = Dinov2Config(hidden_size=FEATURES, num_hidden_layers=1, num_attention_heads=2, mlp_ratio=1, image_size=56)
    folder = tmp_path_factory.mktemp("dinov2")
    Dinov2Model(config).save_pretrained(folder)
    return str(folder)


def parts(*, proprio: bool) -> dict[str, Any]:
    """What a published file holds; `proprio` is part of the tokens, or only of the file."""
    torch.manual_seed(1)
    predictor = ViTPredictor(FEATURES + 10 * proprio + 10)
    return {
        "epoch": 5,
        "predictor": predictor.eval(),
        "predictor_optimizer": torch.optim.AdamW(predictor.parameters()),
        "decoder": nn.Linear(2, 2),
        "action_encoder": ProprioceptiveEmbedding(ACTION),
        "proprio_encoder": ProprioceptiveEmbedding(PROPRIO),
    }


@torch.no_grad()
def imagined_by_the_published(content: dict[str, Any], tokens: Tensor, actions: Tensor) -> Tensor:
    """The published rollout: tokens [B, P, D] without the action, actions [B, H, A], to tokens [B, H, P, D]."""
    embedded = content["action_encoder"](actions)[:, :, None].expand(-1, -1, TOKENS, -1)
    seen: list[Tensor] = []
    found = []
    for step in range(actions.shape[1]):
        seen.append(torch.cat([tokens, embedded[:, step]], -1))
        window = torch.stack(seen[-FRAMES:], 1)
        predicted = content["predictor"](window.flatten(1, 2)).unflatten(1, window.shape[1:3])
        tokens = predicted[:, -1, :, :-10]
        found.append(tokens)
    return torch.stack(found, 1)


@pytest.mark.parametrize("proprio", [True, False], ids=["width-404", "width-394"])
def test_it_imagines_what_the_published_network_does(publish: Any, dinov2: str, tmp_path: Path, proprio: bool) -> None:
    content = parts(proprio=proprio)
    folder = publish(content, tmp_path)
    kind, config = read_config(folder)
    assert (kind, config.predictor.width, config.action_size) == ("dinowm", 404 if proprio else 394, ACTION)
    assert (config.predictor.frames, config.predictor.depth, config.predictor.heads) == (FRAMES, DEPTH, HEADS)
    options = {"proprio_scaler": "identity"} if proprio else {}
    model = load_published(folder, action_scaler="identity", encoder=dinov2, **options)
    observation, _, actions = model.fake_input(batch=2, candidates=1, horizon=4)
    if proprio:
        observation["proprio"] = torch.randn(2, PROPRIO)
    tokens = model.encode(observation)
    if proprio:
        with torch.no_grad():
            felt = content["proprio_encoder"](observation["proprio"][:, None])
        torch.testing.assert_close(tokens[..., FEATURES:], felt.expand(-1, TOKENS, -1))
    wanted = imagined_by_the_published(content, tokens, actions[:, 0])
    torch.testing.assert_close(model.rollout(tokens, actions)[:, 0], wanted, rtol=1e-4, atol=1e-4)
    assert wanted.std(1).min() > 0  # it does not stand still


def write_data(path: Path) -> Path:
    rng = np.random.default_rng(0)
    with EpisodeWriter(path) as writer:
        for _ in range(4):
            felt = rng.normal([5, 0, -2], [2, 1, 3], (8, PROPRIO))
            writer.write({"action": rng.normal(size=(8, 2)).astype(np.float32), "proprio": felt})
    return path


def test_it_becomes_a_checkpoint_that_is_planned_with(publish: Any, dinov2: str, tmp_path: Path) -> None:
    folder, data = publish(parts(proprio=True), tmp_path / "theirs"), write_data(tmp_path / "data.h5")
    convert(folder, data, tmp_path / "ours", encoder=dinov2)
    model = models.load(tmp_path / "ours")
    assert isinstance(model, DinoWorldModel)
    assert model.scaler.frameskip == 2
    assert model.config.proprio is not None
    assert model.config.proprio.mean == pytest.approx((5, 0, -2), abs=2)
    now, goal, _ = model.fake_input(batch=1)
    sources = Parts({"visual": FEATURES, "proprio": 10})
    planner = Planner(model, Cost([PartDistances(sources)]), CEM(samples=4, iterations=1, elites=2), horizon=2)
    assert planner.plan(now, goal, seed=0).env_actions.shape == (1, 4, 2)
    with pytest.raises(ShapeError, match="looks at pixels and 3 numbers of proprioception, got pixels by themselves"):
        planner.plan(now["pixels"], goal["pixels"], seed=0)


def test_a_verifier_is_fitted_to_what_is_seen_and_felt(publish: Any, dinov2: str, tmp_path: Path) -> None:
    """Width 404 by command: proprioception is a part of the latents, of the dataset's and of imagined ones."""
    folder, data, cell = publish(parts(proprio=True), tmp_path / "theirs"), tmp_path / "data.h5", tmp_path / "cell"
    rng = np.random.default_rng(1)
    with EpisodeWriter(data) as writer:
        for _ in range(6):
            pixels = rng.integers(0, 256, (9, 16 * SIDE, 16 * SIDE, 3), np.uint8)
            writer.write(
                {"pixels": pixels, "action": rng.normal(size=(9, 2)), "proprio": rng.normal(5, 2, (9, PROPRIO))}
            )
    options = ["--data", str(data), "--task", "feeling"]
    main(["convert", str(folder), *options, "--encoder", dinov2, "--held-out", "0.2", "--out", str(cell / "model")])
    small = [
        "--network.width",
        "16",
        "--network.heads",
        "2",
        "--network.depth",
        "1",
        "--steps",
        "2",
        "--batch-size",
        "4",
    ]
    main(["train", "verifier", "dinowm", *options, "--scale", "paper", "--out", str(cell), *small])
    model, verifier = models.load(cell / "model"), Verifier.load(cell / "verifier")
    (cached,) = tmp_path.glob("data.*.latents.safetensors")
    with Episodes(data) as episodes:
        seen = read_observation(episodes, np.array([3]), model.columns)
    torch.testing.assert_close(load_file(cached)["latents"][3].float(), model.encode(seen)[0], atol=1e-2, rtol=1e-2)
    now, goal, _ = model.fake_input(batch=1)
    planner = Planner(model, acid_cost(verifier, lam=0.1), CEM(samples=4, iterations=1, elites=2), horizon=2)
    assert planner.plan(now, goal, seed=0).consistency.shape == (1, 2)
    main(["train", "decoder", "dinowm", *options, "--out", str(cell), "--steps", "1", "--batch-size", "2"])
    shutil.copy(data, tmp_path / "broken.h5")
    with h5py.File(tmp_path / "broken.h5", "r+") as file:
        file["proprio"][4] = np.nan
    with (
        Episodes(tmp_path / "broken.h5") as episodes,
        pytest.raises(DataError, match=r"holds proprio that is not finite"),
    ):
        read_observation(episodes, np.arange(9), model.columns)


def test_statistics_of_proprioception_are_asked_for(publish: Any, dinov2: str, tmp_path: Path) -> None:
    folder = publish(parts(proprio=True), tmp_path)
    with pytest.raises(CheckpointError, match="3 numbers of proprioception besides pixels and needs the statistics"):
        load_published(folder, action_scaler="identity", encoder=dinov2)
    folder = publish(parts(proprio=False), tmp_path)
    with pytest.raises(CheckpointError, match="looks at pixels only: leave proprio_scaler out"):
        load_published(folder, action_scaler="identity", proprio_scaler="identity", encoder=dinov2)


def another_width(content: dict[str, Any]) -> None:
    content["predictor"] = ViTPredictor(405)


def another_layer(content: dict[str, Any]) -> None:
    content["predictor"].head = nn.Linear(2, 2)


def another_shape(content: dict[str, Any]) -> None:
    content["predictor"].transformer.layers[1][1].net[1] = nn.Linear(404, 8)


def several_steps(content: dict[str, Any]) -> None:
    content["action_encoder"] = ProprioceptiveEmbedding(ACTION, steps=2)


def an_own_encoder(content: dict[str, Any]) -> None:
    content["encoder"] = nn.Linear(2, 2)


def no_predictor(content: dict[str, Any]) -> None:
    del content["predictor"]


def another_action_encoder(content: dict[str, Any]) -> None:
    content["action_encoder"] = nn.Linear(ACTION, 10)


def no_mlp(content: dict[str, Any]) -> None:
    content["predictor"].transformer.layers[0][1] = nn.Identity()


def a_module_inside_itself(content: dict[str, Any]) -> None:
    content["predictor"].transformer._modules["again"] = content["predictor"]


def not_finite(content: dict[str, Any]) -> None:
    nn.init.constant_(content["predictor"].pos_embedding, torch.nan)


CHANGES = {
    another_width: "tokens have 405 numbers, which are not 384 of DINOv2 ViT-S/14, 10 of proprioception and 10",
    another_layer: r"its predictor has head\.weight, which ours has not",
    another_shape: r"differ in shape at .*blocks\.1\.mlp\.1\.weight \[8, 404\] instead of \[7, 404\]",
    several_steps: r"action_encoder looks at several steps at once, \[10, 4, 2\]",
    an_own_encoder: "holds an encoder of its own",
    no_predictor: "is no checkpoint of DINO-WM: it has no predictor",
    another_action_encoder: "action_encoder holds bias, weight instead of patch_embed",
    no_mlp: r"its weights lack 'transformer\.layers\.0\.1\.net\.1\.weight'",
    a_module_inside_itself: "more than 100000 parts, or is a part of itself",
    not_finite: "positions hold NaN",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_differs_is_named(publish: Any, dinov2: str, tmp_path: Path, change: Callable[..., None]) -> None:
    content = parts(proprio=True)
    change(content)
    publish(content, tmp_path)
    with pytest.raises(CheckpointError, match=CHANGES[change]):
        load_published(tmp_path, action_scaler="identity", proprio_scaler="identity", encoder=dinov2)


def test_which_epoch(publish: Any, tmp_path: Path) -> None:
    folder = publish(parts(proprio=False), tmp_path) / "checkpoints"
    shutil.copy(folder / "model_latest.pth", folder / "model_5.pth")
    assert read_config(tmp_path).kind == "dinowm"
    (folder / "model_latest.pth").rename(folder / "model_4.pth")
    with pytest.raises(CheckpointError, match=r"holds checkpoints/model_4\.pth, checkpoints/model_5\.pth: choose one"):
        read_config(tmp_path)
    assert read_config(tmp_path, "checkpoints/model_5.pth").kind == "dinowm"
