"""Stable Diffusion's VAE from a folder: what diffusers makes of the same weights, or a sentence about what differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_vae import SHAPE, tiny_vae, write_vae
from torch import Tensor

from acid.errors import AcidError, CheckpointError, ShapeError
from acid.models.patch_encoders import EncoderError
from acid.models.vae import WEIGHTS, VAEConfig, VAEShape, load_vae

# What the AutoencoderKL of diffusers 0.42.1 gives for these weights and pictures, the mean × 0.18215 and its picture.
LATENT = (0.0407178216, 0.0456789285, 0.0491650924, 0.0477934219, 0.0538368374, 0.0631183088)
LATENTS = 2.1778259277
PICTURE = (-0.2151392996, -0.2950416207, -0.2339492440)
PICTURES = 2545.2985839844


def pixels() -> Tensor:
    return (torch.arange(2 * 32 * 32 * 3).reshape(2, 32, 32, 3) * 37 % 256).to(torch.uint8)


def test_it_computes_what_diffusers_does(tmp_path: Path) -> None:
    vae = tiny_vae(tmp_path, 32)
    latents = vae.encode(pixels())
    assert latents.shape == (2, 4, 4, 4)
    assert latents.flatten()[:6].tolist() == pytest.approx(LATENT, abs=1e-6)
    assert float(latents.sum()) == pytest.approx(LATENTS, abs=1e-4)
    with torch.no_grad():
        drawn = vae.network.decode(latents)
    assert drawn[0, :, 0, 0].tolist() == pytest.approx(PICTURE, abs=1e-5)
    assert float(drawn.abs().sum()) == pytest.approx(PICTURES, rel=1e-4)
    torch.testing.assert_close(vae.decode(latents), (drawn / 2 + 0.5).clamp(0, 1))


def test_pictures_go_in_many_at_once_and_from_0_to_1(tmp_path: Path) -> None:
    vae = tiny_vae(tmp_path, 32)
    many = pixels().repeat(5, 1, 1, 1)
    latents = vae.encode(many)
    torch.testing.assert_close(latents[8:], vae.encode(pixels()))
    torch.testing.assert_close(vae.encode_images(many.permute(0, 3, 1, 2) / 255), latents)
    with pytest.raises(ShapeError, match="the autoencoder takes uint8 images"):
        vae.encode(many[:, :16])


def older(state: dict[str, Tensor]) -> None:
    """As files of earlier versions of diffusers call attention, some of them as convolutions of one pixel."""
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    for name in [name for name in state if ".attentions." in name]:
        value, renamed = state.pop(name), name
        for new, old in names.items():
            renamed = renamed.replace(new, old)
        state[renamed] = value[:, :, None, None] if value.dim() == 2 else value


def test_older_files_are_the_same(tmp_path: Path) -> None:
    found = load_vae(VAEConfig(image_size=32, source=str(write_vae(tmp_path / "older", older))))
    assert found.digest == tiny_vae(tmp_path / "newer", 32).digest


def test_the_digest_tells_weights_and_what_they_do_not_say(tmp_path: Path) -> None:
    usual = tiny_vae(tmp_path / "usual", 32)
    scaled = load_vae(VAEConfig(image_size=32, source=str(write_vae(tmp_path / "scaled", scaling_factor=0.13025))))
    grouped = load_vae(VAEConfig(image_size=32, source=str(write_vae(tmp_path / "grouped", norm_num_groups=2))))
    assert len({usual.digest, scaled.digest, grouped.digest}) == 3
    with pytest.raises(CheckpointError, match=f"trained with weights {usual.digest} of 'sd-vae'"):
        load_vae(VAEConfig(image_size=32, source=scaled.config.source, digest=usual.digest))


@pytest.mark.parametrize(
    ("described", "told"),
    [
        ({"_class_name": "VQModel"}, "says _class_name = 'VQModel'; Stable Diffusion's VAE has 'AutoencoderKL'"),
        ({"shift_factor": 0.1}, "says shift_factor = 0.1"),
        ({"down_block_types": ["AttnDownEncoderBlock2D"] * 4}, "says down_block_types"),
        ({"block_out_channels": [8, 12]}, "says down_block_types"),
        ({"block_out_channels": [9, 12, 16, 16]}, "multiples of the groups"),
        ({"block_out_channels": "many"}, r"VAEShape\.channels must be"),
        ({"layers_per_block": 3}, "they lack encoder"),
        ({"latent_channels": 16}, "they differ in shape"),
        ({"scaling_factor": 0.0}, "the scale a positive number"),
    ],
)
def test_another_description_is_refused(described: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(AcidError, match=told):
        load_vae(VAEConfig(image_size=32, source=str(write_vae(tmp_path, **described))))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s.pop("quant_conv.bias"), r"they lack quant_conv\.bias"),
        (lambda s: s.update({"loss.logvar": torch.zeros(1)}), r"have the unexpected loss\.logvar"),
    ],
)
def test_other_weights_are_refused(change: Callable[[dict[str, Tensor]], Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=told):
        load_vae(VAEConfig(image_size=32, source=str(write_vae(tmp_path, change))))


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"'sd-vae' is not downloaded by itself: fetch it once with `hf download"):
        load_vae(VAEConfig())
    with pytest.raises(EncoderError, match=r"has no config\.json, so it is not a folder of 'sd-vae'"):
        load_vae(VAEConfig(source=str(tmp_path)))
    (write_vae(tmp_path) / WEIGHTS).unlink()
    with pytest.raises(EncoderError, match=r"has no diffusion_pytorch_model\.safetensors"):
        load_vae(VAEConfig(source=str(tmp_path)))
    with pytest.raises(AcidError, match="unknown image autoencoder 'sdvae'; did you mean 'sd-vae'"):
        load_vae(VAEConfig("sdvae"))
    with pytest.raises(ShapeError, match="a multiple of 8"):
        tiny_vae(tmp_path / "odd", 30)
    with pytest.raises(ShapeError, match="needs levels"):
        VAEShape(channels=())
    assert SHAPE.stride == 8
