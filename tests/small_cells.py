"""Cells as small as they can be, for tests of what is done with cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny_vae import tiny_vae

from acid import checkpoint, models
from acid.data import Episodes, EpisodeWriter, partition
from acid.data.poses import SCALER
from acid.evaluation import Cell, Protocol
from acid.models.cdit import CDiTConfig
from acid.models.compact import CompactConfig, CompactTokenizer, ConvFeaturesConfig, PixelDecoderConfig, QFormerConfig
from acid.models.nwm import NavigationWorldModel, NWMConfig
from acid.models.nwm_diffusion import DiffusionWorldModel, NWMDiffusionConfig
from acid.nn.unmasking import Unmasking
from acid.tasks.collect import Collection, record_episode
from acid.tasks.navigation import Navigation
from acid.verifier import FitConfig, TransformerSize, Verifier

SIDE = 32  # px: LPIPS needs as many
TOKENS = CompactConfig(
    ConvFeaturesConfig(SIDE, (8, 8)),
    QFormerConfig(queries=4, width=16, depth=1, heads=2, mlp_width=16),
    PixelDecoderConfig(SIDE, 16, 1, 2, 16, (4, 4)),
    levels=(5, 4, 3),
)
WORLD_MODEL = NWMConfig(
    3, TOKENS, CDiTConfig(16, 1, 2, 16), context=4, factorised=True, waves=4, unmasking=Unmasking(2)
)


def record_drives(path: Path) -> Path:
    """Twenty short drives in one world, as `acid collect` would keep them; half of them are held out."""
    task = Navigation(size=SIDE, worlds=1)
    task.episode_steps = 20  # type: ignore[misc]
    with EpisodeWriter(path, attributes={"collection": Collection("navigation", 20, SIDE).description()}) as writer:
        for index in range(20):
            writer.write(record_episode(task, 0, index))
    task.close()
    partition(Episodes(path), held_out=0.5)
    return path


def make_navigation(drives: Path, folder: Path) -> Path:
    """A tokenizer and a world model that know nothing, and a verifier that learned from noise."""
    torch.manual_seed(0)
    tokenizer = CompactTokenizer(TOKENS).eval()
    _excite(tokenizer.encoder, tokenizer.qformer)
    model = NavigationWorldModel(WORLD_MODEL, SCALER, tokenizer).eval()
    for block in model.dynamics.blocks:
        torch.nn.init.normal_(block.modulation.weight, std=0.5)
    _excite(model.dynamics.head)
    parts = partition(Episodes(drives)).as_dict()
    told = {"task": "navigation", "model": "nwm", "scale": "tiny", "partition": parts}
    tokenizer.save(folder / "tokenizer", told)
    models.save(model, "nwm", folder / "model", {**told, "validation": {"psnr_imagined_1": 10.0}})
    _fit_verifier(model, folder, {**told, "tokenizer": tokenizer.fingerprint})
    return folder


def make_diffusion(drives: Path, folder: Path) -> Path:
    """The same with a VAE instead of a tokenizer."""
    torch.manual_seed(0)
    vae = tiny_vae(folder / "vae", SIDE)
    config = NWMDiffusionConfig(3, vae.config, CDiTConfig(16, 1, 2, 16), waves=4, steps=2)
    model = DiffusionWorldModel(config, SCALER, vae).eval()
    for layer in (model.dynamics.head, *(block.modulation for block in model.dynamics.blocks)):
        torch.nn.init.normal_(layer.weight, std=0.3)
    told = {"task": "navigation", "model": "nwm-diffusion", "scale": "tiny"}
    told["partition"] = partition(Episodes(drives)).as_dict()
    models.save(model, "nwm-diffusion", folder / "model", {**told, "validation": {"psnr_imagined_1": 10.0}})
    _fit_verifier(model, folder, told)
    return folder


def _fit_verifier(model: Any, folder: Path, told: dict[str, Any]) -> None:
    latents = model.features(model.encode(torch.randint(256, (60, SIDE, SIDE, 3), dtype=torch.uint8)))
    verifier = Verifier.fit(
        latents,
        torch.randn(60, 3) * torch.tensor([0.1, 0.05, 0.04]) + torch.tensor([0.2, 0.0, 0.0]),
        torch.arange(60) // 10,
        size=TransformerSize(12, 1, 2),
        channels=(8,),
        training=FitConfig(steps=3, batch_size=16),
    )
    verifier.save(folder / "verifier", metadata=told)


def _excite(*networks: Any) -> None:
    """Larger weights, so that tokens tell frames and actions apart."""
    for network in networks:
        for weight in network.parameters():
            weight.data.mul_(4 if weight.dim() > 1 else 1)


def add_instances(drives: Path, folder: Path, results: Path) -> Cell:
    """The cell with instances of both halves and a λ for every condition that has one."""
    cell = Cell("navigation", checkpoint.load(folder / "model").kind, folder, results)
    for split, episodes in (("test", 6), ("select", 3)):
        cell.draw(drives, Protocol.of(Navigation.setup, episodes=episodes, split=split))
    cell.choose_lambdas({"acid": 0.5, "acid-path": 0.5, "turn": 0.5, "control": 0.5, "change": 0.5}, "for tests")
    return cell
