"""CompACT's published files: what a plain reading of the published networks gives, or a sentence about what differs."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from published_files import CDiT, Shapes, State, add_cdit, normed, save
from torch import Tensor, nn

from acid import models
from acid.cli import main
from acid.data import EpisodeWriter
from acid.data.poses import SCALER
from acid.errors import CheckpointError, ShapeError
from acid.integrations.published import convert_tokenizer, load_published, load_tokenizer
from acid.models import NavigationWorldModel
from acid.models.compact import CompactTokenizer, JointDecoder
from acid.nn.unmasking import Unmasking

LEVELS, TOKENS, HEADS = (8, 5, 4), 4, 8
CODES = math.prod(LEVELS)
WIDTH, DEPTH, CONTEXT, WAVES = 20, 2, 3, 10  # of the world model; 20 is no multiple of the three numbers of an action
SEEN, DRAWN, SIDE, GRID, VECTOR, BOOK = 32, 16, 32, 2, 5, 9  # widths of Q-former and decoder; of the VQGAN
MULTIPLIERS = (1, 2, 1, 1, 1)


def world_state() -> State:
    made = Shapes(0)
    made.add("x_embedder.weight", CODES + 1, WIDTH, std=1.0)
    made.add("pos_embed", CONTEXT + 1, TOKENS, WIDTH)
    add_cdit(made, WIDTH, DEPTH, WAVES)
    made.state["final_layer.weight"] = made.state["x_embedder.weight"]
    return made.state


def world_file(state: State, about: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """about: parts of the configuration in place of the usual ones; changed: settings of the sampling."""
    diffusion = {
        "num_timesteps": 3,
        "schedule_type": "linear",
        "temperature": 0.0,
        "history_sample_t": 1.0,
        "cfg_prob": 0,
    }
    config = {
        "model": {"generator": {"num_heads": 2}, "diffusion": diffusion | changed},
        "dataset": {"context_size": 3, "image_size": SIDE},
    } | (about or {})
    averaged = {f"_orig_mod.{name}": value for name, value in state.items()}
    return {"model": {k: v + 1 for k, v in averaged.items()}, "ema": averaged, "opt": {}, "config": config, "epoch": 1}


def world_logits(state: State, x: Tensor, actions: Tensor, context: Tensor, elapsed: float) -> Tensor:
    """Tokens [M, P], actions [M, 3] and a context [M, T, P] to logits [M, P, codes + 1], as the published network."""

    network = CDiT(state, WIDTH, heads=2)
    condition = network.embed_action(actions) + network.embed("time_embedder", torch.full((len(x),), elapsed / 128))
    table, places = state["x_embedder.weight"], state["pos_embed"]
    seen = (table[context] + places[:CONTEXT]).flatten(1, 2)
    return network(table[x] + places[CONTEXT], seen, condition) @ table.T


def sampled(predict: Callable[[Tensor], Tensor], rows: int, places: int, mask: int, steps: int, cosine: bool) -> Tensor:
    """The published sampling without noise: tokens [rows, places], of which the least likely are hidden again."""
    x = torch.full((rows, places), mask)
    for step in range(steps):
        logits = predict(x)[..., :mask]
        best = logits.max(-1)
        chosen = torch.where(x == mask, best.indices, x)
        done = (step + 1) / steps
        count = math.floor(places * (math.cos(done * math.pi / 2) if cosine else 1 - done)) if step + 1 < steps else 0
        confidence = torch.where(x == mask, best.values, torch.inf)
        again = confidence.argsort(-1)[:, :count]
        x = chosen.scatter(1, again, mask)
    return x


def residual(made: Shapes, name: str, before: int, after: int) -> None:
    for number, (channels, width) in {1: (before, before), 2: (after, after)}.items():
        made.add(f"{name}.norm{number}.weight", channels)
        made.add(f"{name}.norm{number}.bias", channels)
        made.add(f"{name}.conv{number}.weight", after, width, 3, 3, std=0.1)
    if before != after:
        made.add(f"{name}.nin_shortcut.weight", after, after, 1, 1, std=0.1)


def conv(made: Shapes, name: str, before: int, after: int, side: int, *, bias: bool = True) -> None:
    made.add(f"{name}.weight", after, before, side, side, std=0.1)
    if bias:
        made.add(f"{name}.bias", after)


def tokenizer_state(patches: Tensor) -> State:
    """patches: of the DINOv3 that lies in the file."""
    made = Shapes(1)
    made.state |= {"normalize_mean": torch.zeros(1, 3, 1, 1), "normalize_std": torch.ones(1, 3, 1, 1)}
    widths = [32 * multiplier for multiplier in MULTIPLIERS]
    base, levels = "base_tokenizer", len(MULTIPLIERS)
    made.add(f"{base}.quantize.embedding.weight", BOOK, VECTOR, std=1.0)
    conv(made, f"{base}.encoder.conv_in", 3, 32, 3, bias=False)
    conv(made, f"{base}.encoder.conv_out", widths[-1], VECTOR, 1)
    conv(made, f"{base}.decoder.conv_in", VECTOR, widths[-1], 3)
    conv(made, f"{base}.decoder.conv_out", widths[0], 3, 3)
    for number in range(levels):
        residual(made, f"{base}.encoder.down.{number}.block.0", widths[max(0, number - 1)], widths[number])
        residual(made, f"{base}.decoder.up.{number}.block.0", widths[min(number + 1, levels - 1)], widths[number])
        if number:
            conv(made, f"{base}.decoder.up.{number}.upsample.conv", widths[number], widths[number], 3)
    for half, width in {"encoder": widths[-1], "decoder": widths[0]}.items():
        made.module(f"{base}.{half}.norm_out", nn.GroupNorm(32, width))
        for number in (1, 2):
            residual(made, f"{base}.{half}.mid.block_{number}", widths[-1], widths[-1])
    encoder, decoder = "compact_tokenizer.encoder", "compact_tokenizer.decoder"
    made.state[f"{encoder}.dinov3_model.patch_embed.proj.weight"] = patches
    made.add(f"{encoder}.query_tokens", 1, TOKENS, SEEN, std=3.0)
    for number in range(2):
        made.module(f"{encoder}.qformer_layers.{number}", nn.TransformerDecoderLayer(SEEN, HEADS, 4 * SEEN))
    made.module(f"{encoder}.final_norm_layer", nn.LayerNorm(SEEN))
    made.linear(f"{encoder}.out_proj", SEEN, len(LEVELS))
    for name, value in made.state.items():  # so that frames have different tokens
        value += float(name.startswith(encoder) and "norm" in name and name.endswith("weight"))
    made.linear(f"{decoder}.in_proj", len(LEVELS), DRAWN)
    for name, places in {"pos_embed_dec": GRID**2, "pos_embed_dec_latent": TOKENS, "latent_init": TOKENS}.items():
        made.add(f"{decoder}.{name}", 1, places, DRAWN)
    table = made.add(f"{decoder}.embeddings.weight", BOOK + 1, DRAWN, std=1.0)
    made.state[f"{decoder}.classification_head.weight"] = table
    made.module(f"{decoder}.last_ln", nn.LayerNorm(DRAWN))
    for number in range(2):
        block, last = f"{decoder}.blocks.{number}", number == 1
        made.linear(f"{block}.norm1.linear", DRAWN, 6 * DRAWN)
        made.linear(f"{block}.norm1_context.linear", DRAWN, (2 if last else 6) * DRAWN)
        for name in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_out.0"):
            made.linear(f"{block}.attn.{name}", DRAWN, DRAWN)
        for name in ("ff",) if last else ("ff", "ff_context"):
            made.linear(f"{block}.{name}.net.0.proj", DRAWN, 4 * DRAWN)
            made.linear(f"{block}.{name}.net.2", 4 * DRAWN, DRAWN)
        if not last:
            made.linear(f"{block}.attn.to_add_out", DRAWN, DRAWN)
    return made.state


def tokenizer_file(state: State, **changed: Any) -> dict[str, Any]:
    """As Lightning writes it, with what training keeps beside the tokenizer."""
    tokenizer = {
        "encoder": {"num_attention_heads": HEADS},
        "quantizer": {"levels": list(LEVELS)},
        "diffusion": {"num_timesteps": 3, "schedule_type": "cosine", "temperature": 0.0, "cfg_prob": 0.1},
    }
    dataset = {"use_dino_image_for_compact": True, "dinov2_image_size": SIDE}
    names = {f"tokenizer.{k}": v for k, v in state.items()} | {"ema_tokenizer.step": torch.tensor(3)}
    told = {"model": {"tokenizer": {"compact_tokenizer": tokenizer | changed}}, "dataset": dataset}
    return {"state_dict": names, "hyper_parameters": told, "epoch": 3, "callbacks": {}, "loops": {}}


def decoder_logits(state: State, x: Tensor, codes: Tensor) -> Tensor:
    """VQGAN codes [M, G·G], some hidden, and what tokens say [M, P, D], to logits [M, G·G, book]."""
    start = "compact_tokenizer.decoder."

    def linear(name: str, value: Tensor) -> Tensor:
        return value @ state[f"{start}{name}.weight"].T + state[f"{start}{name}.bias"]

    def mlp(name: str, value: Tensor) -> Tensor:
        return linear(f"{name}.net.2", F.gelu(linear(f"{name}.net.0.proj", value), approximate="tanh"))

    told = linear("in_proj", codes) + state[f"{start}pos_embed_dec_latent"]
    mean = F.silu(told.mean(1))[:, None]
    tokens = torch.cat([told, state[f"{start}latent_init"].expand(len(x), -1, -1)], 1)
    hidden = state[f"{start}embeddings.weight"][x] + state[f"{start}pos_embed_dec"]
    for number in range(2):
        name = f"blocks.{number}"
        part = linear(f"{name}.norm1.linear", mean).split(DRAWN, -1)
        other = linear(f"{name}.norm1_context.linear", mean).split(DRAWN, -1)
        shift, scale = other[:2] if number == 0 else other[::-1]
        looks, tells = normed(hidden) * (1 + part[1]) + part[0], normed(tokens) * (1 + scale) + shift
        query, key, value = (
            torch.cat([linear(f"{name}.attn.to_{k}", looks), linear(f"{name}.attn.add_{k}_proj", tells)], 1)
            .unflatten(-1, (HEADS, DRAWN // HEADS))
            .transpose(1, 2)
            for k in "qkv"
        )
        attended = (query @ key.transpose(2, 3) / math.sqrt(DRAWN // HEADS)).softmax(-1) @ value
        seen = attended.transpose(1, 2).flatten(2)
        hidden = hidden + part[2] * linear(f"{name}.attn.to_out.0", seen[:, : GRID**2])
        hidden = hidden + part[5] * mlp(f"{name}.ff", normed(hidden) * (1 + part[4]) + part[3])
        if number == 0:
            tokens = tokens + other[2] * linear(f"{name}.attn.to_add_out", seen[:, GRID**2 :])
            tokens = tokens + other[5] * mlp(f"{name}.ff_context", normed(tokens) * (1 + other[4]) + other[3])
    last = F.layer_norm(hidden, (DRAWN,), state[f"{start}last_ln.weight"], state[f"{start}last_ln.bias"])
    return last @ state[f"{start}embeddings.weight"][:-1].T


class Convolutions:
    """The published VQGAN, its encoder or its decoder, from its weights."""

    def __init__(self, state: State, half: str) -> None:
        self.start, self.state = f"base_tokenizer.{half}.", state

    def of(self, name: str, x: Tensor) -> Tensor:
        start = self.start + name
        return F.conv2d(x, self.state[f"{start}.weight"], self.state.get(f"{start}.bias"), padding="same")

    def smooth(self, name: str, x: Tensor) -> Tensor:
        start = self.start + name
        return F.silu(F.group_norm(x, 32, self.state[f"{start}.weight"], self.state[f"{start}.bias"], eps=1e-6))

    def block(self, name: str, x: Tensor) -> Tensor:
        found = self.of(f"{name}.conv1", self.smooth(f"{name}.norm1", x))
        found = self.of(f"{name}.conv2", self.smooth(f"{name}.norm2", found))
        changed = f"{self.start}{name}.nin_shortcut.weight" in self.state
        return found + (self.of(f"{name}.nin_shortcut", found) if changed else x)

    def middle(self, x: Tensor) -> Tensor:
        return self.block("mid.block_2", self.block("mid.block_1", x))

    def finish(self, x: Tensor) -> Tensor:
        return self.of("conv_out", self.smooth("norm_out", x))


def drawn_by_the_vqgan(state: State, codes: Tensor) -> Tensor:
    """Codes [M, G·G] to pictures [M, 3, S, S]."""
    network = Convolutions(state, "decoder")
    vectors = state["base_tokenizer.quantize.embedding.weight"][codes]
    x = network.middle(network.of("conv_in", vectors.transpose(1, 2).reshape(len(codes), VECTOR, GRID, GRID)))
    for number in reversed(range(len(MULTIPLIERS))):
        x = network.block(f"up.{number}.block.0", x)
        if number:
            x = network.of(f"up.{number}.upsample.conv", x.repeat_interleave(2, 2).repeat_interleave(2, 3))
    return network.finish(x).clamp(0, 1)


def read_by_the_vqgan(state: State, shown: Tensor) -> Tensor:
    """Pixels [M, S, S, 3] to codes [M, G·G]."""
    network = Convolutions(state, "encoder")
    x = network.of("conv_in", shown.permute(0, 3, 1, 2) / 255)
    for number in range(len(MULTIPLIERS)):
        x = network.block(f"down.{number}.block.0", F.avg_pool2d(x, 2) if number else x)
    found = network.finish(network.middle(x)).flatten(2).transpose(1, 2)
    book = state["base_tokenizer.quantize.embedding.weight"]
    return (found[:, :, None] - book).square().sum(-1).argmin(-1)


@pytest.fixture(scope="module")
def dinov3(tmp_path_factory: pytest.TempPathFactory) -> str:
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    torch.manual_seed(0)
    sizes = {"hidden_size": SEEN, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2}
    folder = tmp_path_factory.mktemp("dinov3")
    DINOv3ViTModel(DINOv3ViTConfig(**sizes, num_register_tokens=4, image_size=SIDE)).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def published_tokenizer(dinov3: str) -> State:
    from transformers import DINOv3ViTModel

    return tokenizer_state(DINOv3ViTModel.from_pretrained(dinov3).state_dict()["embeddings.patch_embeddings.weight"])


@pytest.fixture
def experiment(published_tokenizer: State, tmp_path: Path) -> Path:
    return save(tokenizer_file(published_tokenizer), tmp_path / "tokenizer-run", "epoch=0-step=10.ckpt")


@pytest.fixture
def tokenizer(experiment: Path, dinov3: str) -> CompactTokenizer:
    return load_tokenizer(experiment, encoder=dinov3)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return save(world_file(world_state()), tmp_path / "world-run", "0000010.pth.tar")


def pixels(*shape: int) -> Tensor:
    return torch.randint(256, (*shape, SIDE, SIDE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))


def plain_squares() -> Tensor:
    """Four in each of eight frames."""
    return pixels(8)[:, :2, :2].repeat_interleave(16, 1).repeat_interleave(16, 2)


@torch.no_grad()
def test_frames_become_the_published_tokens(
    tokenizer: CompactTokenizer, published_tokenizer: State, dinov3: str
) -> None:
    from transformers import DINOv3ViTModel

    shown = plain_squares()
    images = (shown.permute(0, 3, 1, 2) / 255 - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor(
        [0.229, 0.224, 0.225]
    ).view(3, 1, 1)
    memory = DINOv3ViTModel.from_pretrained(dinov3).eval()(pixel_values=images).last_hidden_state[:, 5:]
    start = "compact_tokenizer.encoder."
    state = {k.removeprefix(start): v for k, v in published_tokenizer.items() if k.startswith(start)}
    found = state["query_tokens"].expand(len(shown), -1, -1)
    for number in range(2):
        layer = nn.TransformerDecoderLayer(SEEN, HEADS, 4 * SEEN, activation="gelu", batch_first=True).eval()
        name = f"qformer_layers.{number}."
        layer.load_state_dict({k.removeprefix(name): v for k, v in state.items() if k.startswith(name)})
        found = layer(found, memory)
    found = F.layer_norm(found, (SEEN,), state["final_norm_layer.weight"], state["final_norm_layer.bias"])
    found = found @ state["out_proj.weight"].T + state["out_proj.bias"]
    codes, numbers, base = [], torch.zeros(len(shown), TOKENS, dtype=torch.long), 1
    for place, levels in enumerate(LEVELS):  # finite scalar quantisation as published
        half, offset = (levels - 1) * 1.001 / 2, 0.5 if levels % 2 == 0 else 0.0
        rounded = ((found[..., place] + math.atanh(offset / half)).tanh() * half - offset).round()
        codes.append(rounded / (levels // 2))
        numbers += (rounded + levels // 2).long() * base
        base *= levels
    latents = tokenizer.encode(shown)
    torch.testing.assert_close(latents, torch.stack(codes, -1))
    assert torch.equal(tokenizer.quantiser.to_indices(latents), numbers)
    assert torch.equal(tokenizer.quantiser.from_indices(numbers), latents)
    assert len(numbers.unique()) > 10


@torch.no_grad()
def test_tokens_become_the_published_pictures(tokenizer: CompactTokenizer, published_tokenizer: State) -> None:
    codes = tokenizer.quantiser.from_indices(
        torch.randint(CODES, (6, TOKENS), generator=torch.Generator().manual_seed(2))
    )
    hidden = torch.rand(6, GRID**2, generator=torch.Generator().manual_seed(3)) < 0.5
    x = torch.randint(BOOK, (6, GRID**2), generator=torch.Generator().manual_seed(4))
    decoder = tokenizer.decoder
    assert isinstance(decoder, JointDecoder)
    wanted = decoder_logits(published_tokenizer, x.masked_fill(hidden, BOOK), codes)
    torch.testing.assert_close(decoder.logits(decoder.condition(codes), x, hidden), wanted, rtol=1e-4, atol=1e-4)

    def predict(x: Tensor) -> Tensor:
        said = decoder_logits(published_tokenizer, x, codes)
        return said + 2.0 * (said - decoder_logits(published_tokenizer, x, torch.zeros_like(codes)))

    chosen = sampled(predict, 6, GRID**2, BOOK, 3, cosine=True)
    pictures = drawn_by_the_vqgan(published_tokenizer, chosen).permute(0, 2, 3, 1)
    torch.testing.assert_close(tokenizer.decode(codes), pictures, rtol=1e-4, atol=1e-4)
    assert len(chosen.unique(dim=0)) > 3
    assert pictures.std() > 0.01
    shown = plain_squares()
    assert torch.equal(decoder.codec.encode(shown), read_by_the_vqgan(published_tokenizer, shown))
    assert decoder.loss(codes, shown[:6]) > 0


@torch.no_grad()
def test_frames_are_imagined_as_published(world: Path, tokenizer: CompactTokenizer) -> None:
    model = load_published(world, tokenizer=tokenizer)
    assert isinstance(model, NavigationWorldModel)
    assert model.scaler == SCALER
    random = torch.Generator().manual_seed(6)
    context = torch.randint(CODES, (5, CONTEXT, TOKENS), generator=random)
    x, actions = torch.randint(CODES + 1, (5, TOKENS), generator=random), torch.randn(5, 3, generator=random)
    dynamics, state = model.dynamics, world_state()
    for elapsed in (1, 7):
        modulations = dynamics.condition(actions, elapsed)
        contexts = dynamics.look(context[..., None], None, modulations)
        found = dynamics(x.clamp(max=CODES - 1)[..., None], x == CODES, modulations, contexts)
        wanted = world_logits(state, x, actions, context, elapsed)[..., :CODES]
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    plans = torch.randn(5, 1, 3, 3, generator=random)
    imagined = model.rollout(model.from_tokens(context[..., None]), plans)
    for step in range(3):
        predict = partial(world_logits, state, actions=plans[:, 0, step], context=context, elapsed=1)
        new = sampled(predict, 5, TOKENS, CODES, 3, cosine=False)
        assert torch.equal(model.to_tokens(imagined[:, 0, step])[..., 0], new)
        context = torch.cat([context[:, 1:], new[:, None]], 1)


def test_some_of_the_context_is_forgotten_anew_for_every_frame(
    tokenizer: CompactTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(world_file(world_state(), history_sample_t=0.5), tmp_path, "latest.pth.tar")
    model = load_published(folder, tokenizer=tokenizer)
    seen, original = [], model.dynamics.look
    monkeypatch.setattr(model.dynamics, "look", lambda f, h, m: (seen.append(h), original(f, h, m))[1])
    start, plans = (
        tokenizer.quantiser.from_indices(torch.zeros(2, CONTEXT, TOKENS, dtype=torch.long)),
        torch.zeros(2, 3, 2, 3),
    )
    first = model.rollout(start, plans, seeds=[1, 2])
    assert [list(hidden.shape) for hidden in seen] == [[6, CONTEXT, TOKENS]] * 2
    assert all((hidden.sum(-1) == 2).all() for hidden in seen)
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0][:3], seen[0][:1].expand(3, -1, -1))  # candidates share it
    assert not torch.equal(seen[0][:3], seen[0][3:])  # problems do not
    assert torch.equal(model.rollout(start, plans, seeds=[1, 2]), first)


def test_the_published_settings_are_used_where_a_file_tells_none(dinov3: str, tmp_path: Path) -> None:
    state = world_state()
    torch.save({"ema": state, "args": None}, tmp_path / "latest.pth.tar")
    content = tokenizer_file(tokenizer_state(torch.zeros(1)))
    with pytest.raises(CheckpointError, match=r"predicts tokens of CompACT's tokenizer.*name its folder as tokenizer"):
        load_published(tmp_path)
    del content["hyper_parameters"]
    run = save(content, tmp_path / "run", "a.ckpt")
    with pytest.raises(CheckpointError, match=r"its tokens have 3 numbers, not levels \(8, 8, 8, 5, 5, 5\)"):
        load_tokenizer(run, encoder=dinov3)


def test_both_are_converted_by_command_and_planned_with(
    experiment: Path, world: Path, dinov3: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, cell = tmp_path / "drives.h5", tmp_path / "cell"
    random = np.random.default_rng(0)
    with EpisodeWriter(data) as writer:
        for _ in range(4):
            pose = np.cumsum(random.normal(0.1, 0.05, (9, 3)), 0)
            writer.write(
                {"pixels": random.integers(0, 256, (9, SIDE, SIDE, 3), np.uint8), "pose": pose, "action": pose}
            )
    main(["convert", str(experiment), "--encoder", dinov3, "--out", str(cell / "tokenizer")])
    chosen = ["--data", str(data), "--held-out", "0.25", "--tokenizer", str(cell / "tokenizer")]
    main(["convert", str(world), *chosen, "--out", str(cell / "model")])
    assert capsys.readouterr().out.count("wrote") == 2
    made, kept = models.load(cell / "model"), CompactTokenizer.load(cell / "tokenizer")
    assert isinstance(made, NavigationWorldModel)
    assert made.unmasking == Unmasking(3, 0.0, "linear", "squared", "logit")
    latents = made.encode(pixels(2, CONTEXT))
    assert torch.equal(latents, kept.encode(pixels(2, CONTEXT)))
    assert made.decode(made.rollout(latents, torch.zeros(2, 2, 2, 3))).shape == (2, 2, 2, SIDE, SIDE, 3)
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
    main(
        [
            "train",
            "verifier",
            "nwm",
            "--scale",
            "paper",
            "--task",
            "drives",
            "--data",
            str(data),
            "--out",
            str(cell),
            *small,
        ]
    )
    assert (cell / "verifier" / "model.safetensors").exists()


def test_what_belongs_together_is_checked(
    experiment: Path, world: Path, tokenizer: CompactTokenizer, dinov3: str
) -> None:
    with pytest.raises(CheckpointError, match=r"0000010\.pth\.tar holds a world model, which needs the dataset"):
        load_tokenizer(world)
    with pytest.raises(CheckpointError, match="holds a tokenizer, which has no actions"):
        load_published(experiment, tokenizer=tokenizer)
    with pytest.raises(CheckpointError, match="whose action statistics are known: leave them out"):
        load_published(world, action_scaler="identity", tokenizer=tokenizer)
    with pytest.raises(CheckpointError, match="holds no tokenizer"):
        load_tokenizer(world.parent)


def test_another_dinov3_is_noticed(experiment: Path, tmp_path: Path, dinov3: str) -> None:
    from transformers import DINOv3ViTModel

    other = DINOv3ViTModel.from_pretrained(dinov3)
    other.embeddings.patch_embeddings.weight.data += 0.1
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"is not the DINOv3 of .*ckpt; name its folder as encoder"):
        load_tokenizer(experiment, encoder=str(tmp_path / "other"))


Damage = Callable[[State], Any]
WORLD_DAMAGE: dict[str, tuple[Damage, str]] = {
    "lacking": (lambda s: s.pop("blocks.1.cttn.bias_k"), r"its weights lack 'blocks\.1\.cttn\.bias_k'"),
    "more": (
        lambda s: s.update({"extra.weight": torch.zeros(1)}),
        r"its weights have extra\.weight, which ours has not",
    ),
    "gap": (lambda s: [s.pop(k) for k in list(s) if k.startswith("blocks.0.")], r"its blocks are numbered \[1\]"),
    "shape": (
        lambda s: s.update({"blocks.0.mlp.fc2.weight": torch.zeros(WIDTH, 25)}),
        r"differ in shape at dynamics\.blocks",
    ),
    "flat": (lambda s: s.update({"pos_embed": torch.zeros(3)}), r"pos_embed has the shape \[3\]"),
    "parts": (lambda s: s.update({"blocks.0.adaLN_modulation.1.weight": torch.zeros(7, WIDTH)}), "has an absurd shape"),
    "codes": (
        lambda s: s.update({"x_embedder.weight": torch.zeros(9, WIDTH)}),
        "predicts 4 tokens of 8 codes, the tok",
    ),
    "untied": (lambda s: s.update({"final_layer.weight": torch.zeros(CODES + 1, WIDTH)}), "is not its table of tokens"),
    "frames": (
        lambda s: s.update({"pos_embed": s["pos_embed"][:1]}),
        r"positions \[1, 4, 20\] are not those of its con",
    ),
    "others": (
        lambda s: s.update({"pos_embed": s["pos_embed"][:3]}),
        r"positions \[3, 4, 20\] are not those of its con",
    ),
    "keys": (lambda s: s.update({"blocks.0.cttn.bias_k": torch.zeros(2, 1, WIDTH)}), "has an absurd shape"),
    "nan": (lambda s: s["pos_embed"].fill_(torch.nan), "pos_embed hold NaN or infinite numbers"),
    "nwm": (
        lambda s: s.update({"x_embedder.proj.weight": torch.zeros(1)}),
        "denoises latents of a VAE: leave the tokenizer out",
    ),
    "guided": (lambda s: s.update({"null_action_embedding": torch.zeros(1)}), "trained with guidance by actions"),
    "levels": (lambda s: s.update({"x_embedder.mask_token": torch.zeros(1)}), "predicts levels one by one"),
    "nothing": (lambda s: s.clear(), r"holds no averaged weights \(ema\)"),
}


@pytest.mark.parametrize("kind", WORLD_DAMAGE)
def test_another_world_model_is_refused(kind: str, tokenizer: CompactTokenizer, tmp_path: Path) -> None:
    state = world_state()
    damage, told = WORLD_DAMAGE[kind]
    damage(state)
    with pytest.raises(CheckpointError, match=told):
        load_published(save(world_file(state), tmp_path, "latest.pth.tar"), tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"schedule_type": "arccos"}, "unmasked in a way that is not known here"),
        ({"num_timesteps": "8"}, r"says model\.diffusion\.num_timesteps = '8'"),
        ({"num_timesteps": 10**9}, "4 tokens cannot be unmasked in 1000000000 steps"),
        ({"top_k": 5}, "from the likeliest only"),
        ({"about": {"model": {"generator": {"num_heads": -1}}}}, "must be a multiple of the -1 heads"),
    ],
)
def test_another_sampling_is_refused(
    changed: dict[str, Any], told: str, tokenizer: CompactTokenizer, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=told):
        load_published(save(world_file(world_state(), **changed), tmp_path, "a.pth.tar"), tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("sampling", "forget"),
    [
        ({}, 0.2),  # nothing is told: as published
        ({"schedule_type": "linear", "history_sample_t": 0.9}, 0.1),
        ({"schedule_type": "cosine", "history_sample_t": 2 / 3}, 0.5),
        ({"schedule_type": "cosine"}, 0.0),  # a sampler that hides nothing of the context
    ],
)
def test_what_is_forgotten_follows_from_the_sampler(
    sampling: dict[str, Any], forget: float, tokenizer: CompactTokenizer, tmp_path: Path
) -> None:
    content = world_file(world_state(), {"model": {"generator": {"num_heads": 2}, "diffusion": sampling}})
    assert load_published(save(content, tmp_path, "a.pth.tar"), tokenizer=tokenizer).config.forget == forget


def test_a_tokenizer_of_other_levels_or_frames_is_refused(
    tokenizer: CompactTokenizer, experiment: Path, dinov3: str, tmp_path: Path
) -> None:
    levels = {"tokenizer": {"compact_tokenizer": {"quantizer": {"levels": list(LEVELS[::-1])}}}}
    other = save(world_file(world_state(), {"model": levels}), tmp_path / "levels", "a.pth.tar")
    with pytest.raises(CheckpointError, match=r"its levels \(8, 5, 4\) are not CompACT's \(4, 5, 8\)"):
        load_published(other, tokenizer=tokenizer)
    larger = save(world_file(world_state(), {"dataset": {"image_size": 48}}), tmp_path / "larger", "a.pth.tar")
    with pytest.raises(CheckpointError, match=r"48 pixels .* looks at 32: convert the tokenizer with image_size=48"):
        load_published(larger, tokenizer=tokenizer)
    model = load_published(larger, tokenizer=load_tokenizer(experiment, encoder=dinov3, image_size=48))
    assert isinstance(model, NavigationWorldModel)
    assert model.tokenizer.encoder.grid == (3, 3)
    assert model.observation_size == SIDE


def test_options_that_do_not_belong_together(
    experiment: Path, world: Path, dinov3: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, options, told in (
        (experiment, ["--tokenizer", "t"], "--tokenizer and --held-out are for a world model"),
        (experiment, ["--held-out", "0.2"], "--tokenizer and --held-out are for a world model"),
        (world, ["--data", "d.h5", "--image-size", "224"], "--image-size 224 is for a tokenizer"),
    ):
        with pytest.raises(SystemExit):
            main(["convert", str(folder), *options, "--out", "nowhere"])
        assert told in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="is the published folder itself"):
        convert_tokenizer(experiment, experiment, encoder=dinov3)


DECODER = "compact_tokenizer.decoder"
TOKENIZER_DAMAGE: dict[str, tuple[Damage, str]] = {
    "lacking": (lambda s: s.pop(f"{DECODER}.blocks.0.attn.to_add_out.bias"), r"lack '.*to_add_out\.bias'"),
    "more": (
        lambda s: s.update({f"{DECODER}.latent_mlp.0.weight": torch.zeros(1)}),
        "latent_mlp.0.weight, which ours has not",
    ),
    "codec": (
        lambda s: s.pop("base_tokenizer.decoder.up.1.upsample.conv.bias"),
        r"lack decoder\.codec\.decoder\.up\.1",
    ),
    "untied": (lambda s: s[f"{DECODER}.embeddings.weight"].add_(1), "is not its table of codes"),
    "registers": (
        lambda s: s.update({"compact_tokenizer.encoder.query_tokens": torch.zeros(1, 9, SEEN)}),
        "9 queries for 4",
    ),
    "places": (lambda s: s.update({f"{DECODER}.pos_embed_dec": torch.zeros(1, 5, DRAWN)}), "5 codes a picture"),
    "normalised": (lambda s: s["normalize_mean"].add_(0.5), "its pictures are normalised"),
    "features": (
        lambda s: s.pop("compact_tokenizer.encoder.dinov3_model.patch_embed.proj.weight"),
        "look through DINOv3",
    ),
}


@pytest.mark.parametrize("kind", TOKENIZER_DAMAGE)
def test_another_tokenizer_is_refused(kind: str, published_tokenizer: State, dinov3: str, tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in published_tokenizer.items()}
    damage, told = TOKENIZER_DAMAGE[kind]
    if kind == "untied":  # which a file may be, though its weights are one tensor when they are written
        state[f"{DECODER}.classification_head.weight"] = state[f"{DECODER}.classification_head.weight"].clone()
    damage(state)
    with pytest.raises(CheckpointError, match=told):
        load_tokenizer(save(tokenizer_file(state), tmp_path, "a.ckpt"), encoder=dinov3)


class Intruder:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("name", ["latest.pth.tar", "a.ckpt"])
def test_code_in_a_file_is_not_run_and_damage_is_told(name: str, world: Path, tmp_path: Path) -> None:
    mark = tmp_path / "intruded"
    folder = save({"ema": Intruder(mark), "state_dict": {"tokenizer.a": Intruder(mark)}}, tmp_path / "evil", name)
    with pytest.raises(CheckpointError, match=r"asks to import (posix|nt)\.mkdir and was not opened"):
        load_tokenizer(folder)
    assert not mark.exists()
    whole = (world / "checkpoints" / "0000010.pth.tar").read_bytes()
    (folder / "checkpoints" / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="truncated, damaged"):
        load_tokenizer(folder)


def test_several_files_are_a_choice(world: Path, tokenizer: CompactTokenizer) -> None:
    place = world / "checkpoints"
    shutil.copy(place / "0000010.pth.tar", place / "0000020.pth.tar")
    with pytest.raises(
        CheckpointError, match=r"checkpoints/0000010\.pth\.tar, checkpoints/0000020\.pth\.tar: choose one"
    ):
        load_published(world, tokenizer=tokenizer)
    named = load_published(world, tokenizer=tokenizer, weights="checkpoints/0000020.pth.tar")
    shutil.copy(place / "0000010.pth.tar", place / "latest.pth.tar")
    latest = load_published(world, tokenizer=tokenizer)
    assert all(torch.equal(value, latest.state_dict()[name]) for name, value in named.state_dict().items())


def test_the_published_network_has_no_levels_one_by_one() -> None:
    with pytest.raises(ShapeError, match="factorised=True is not one of its settings"):
        replace(models.nwm.lite(3), published=True)
    with pytest.raises(ShapeError, match="forget is a share"):
        replace(models.nwm.paper(3), forget=0.2)


def test_help_lists_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["convert", "--help"])
    told = capsys.readouterr().out
    for format in ("weights.pt", "_object.ckpt", "model_latest.pth", "STEP.pth.tar", "NAME.ckpt", "NWM's own CDiT"):
        assert format in told
