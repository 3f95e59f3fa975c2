"""The CompACT tokenizer in both forms, with small networks: shapes, codes, learning, checkpoints, frozen parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from acid.errors import CheckpointError, ShapeError
from acid.models import compact
from acid.models.compact import (
    CompactConfig,
    CompactLoss,
    CompactLossConfig,
    CompactTokenizer,
    ConvFeaturesConfig,
    MaskedDecoderConfig,
    PixelDecoderConfig,
    QFormerConfig,
)
from acid.models.image_codecs import CodecConfig, ImageCodec, load_codec
from acid.models.patch_encoders import EncoderError, PatchEncoder, PatchEncoderConfig, load_encoder
from acid.nn.unmasking import Unmasking

SIDE = 16
QFORMER = QFormerConfig(queries=4, width=16, depth=1, heads=2, mlp_width=24)
DIRECT = CompactConfig(
    ConvFeaturesConfig(SIDE, (8, 12)), QFORMER, PixelDecoderConfig(SIDE, 16, 1, 2, 24, (8, 8)), levels=(5, 4, 3)
)
FROZEN = PatchEncoderConfig("stand-in", observation_size=SIDE, image_size=SIDE)
MASKED = CompactConfig(
    FROZEN, QFORMER, MaskedDecoderConfig(CodecConfig("stand-in", SIDE), 16, 2, 2, 24, Unmasking(3)), levels=(5, 4, 3)
)


class Patches(nn.Module):
    """A fixed random convolution at stride 8."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0)) / 8)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, stride=8)


class Greys(nn.Module):
    """A codec of 7 greys at stride 4."""

    size = 7

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def encode(self, images: Tensor) -> Tensor:
        return (F.avg_pool2d(images.mean(1), 4) * self.scale + 3).round().long()

    def decode(self, codes: Tensor) -> Tensor:
        return ((codes - 3) / self.scale)[:, None].repeat_interleave(4, 2).repeat_interleave(4, 3).expand(-1, 3, -1, -1)


def parts() -> dict[str, object]:
    codec = ImageCodec(CodecConfig("stand-in", SIDE), Greys(), size=Greys.size, grid=SIDE // 4)
    return {"encoder": PatchEncoder(FROZEN, Patches()), "codec": codec}


def make(form: str) -> CompactTokenizer:
    torch.manual_seed(0)
    return CompactTokenizer(DIRECT) if form == "direct" else CompactTokenizer(MASKED, **parts())


def frames(count: int) -> Tensor:
    """Grey and black squares of 8 pixels in all arrangements."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.randint(2, (count, 2, 2, 1), generator=generator).expand(-1, -1, -1, 3) * 200
    return coarse.repeat_interleave(8, 1).repeat_interleave(8, 2).to(torch.uint8)


@pytest.mark.parametrize("form", ["direct", "masked"])
def test_frames_become_codes_and_codes_pictures(form: str) -> None:
    tokenizer = make(form).eval()
    pixels = frames(6).unflatten(0, (2, 3))
    latents = tokenizer.encode(pixels)
    assert latents.shape == (2, 3, 4, 3)
    quantiser = tokenizer.quantiser
    torch.testing.assert_close(quantiser.from_indices(quantiser.to_indices(latents)), latents)
    drawn = tokenizer.decode(latents)
    assert drawn.shape == (2, 3, SIDE, SIDE, 3)
    assert 0 <= drawn.min() <= drawn.max() <= 1
    assert torch.equal(tokenizer.decode(latents), drawn)
    assert torch.equal(tokenizer.encode(pixels[1, 1:2]), latents[1, 1:2])
    assert tokenizer.features(latents).shape[:2] == (2, 3)
    with pytest.raises(ShapeError, match=r"uint8 images \[..., 16, 16, 3\], got torch.uint8 \[1, 8, 8, 3\]"):
        tokenizer.encode(pixels[0, :1, :8, :8])


@pytest.mark.parametrize("form", ["direct", "masked"])
def test_it_learns_to_redraw(form: str) -> None:
    tokenizer, pixels = make(form).train(), frames(64)
    objective = CompactLoss(CompactLossConfig())
    optimiser = torch.optim.AdamW(tokenizer.parameters(), lr=5e-3)

    def error() -> float:
        return float((tokenizer.decode(tokenizer.encode(pixels)) - pixels / 255).square().mean())

    before = error()
    for _ in range(120):
        optimiser.zero_grad()
        objective(tokenizer, pixels)["loss"].backward()
        optimiser.step()
    assert error() < before / (4 if form == "direct" else 2)  # codes that are drawn at random leave some error


def test_the_perceptual_term_is_added_for_a_few_frames() -> None:
    asked: list[tuple[Tensor, Tensor]] = []

    def distance(drawn: Tensor, images: Tensor) -> Tensor:
        asked.append((drawn, images))
        return (drawn - images).abs().mean((1, 2, 3))

    tokenizer, pixels = make("direct"), frames(6)
    plain = CompactLoss(CompactLossConfig())(tokenizer, pixels)
    config = CompactLossConfig(perceptual=0.5, perceptual_frames=4)
    losses = CompactLoss(config, distance)(tokenizer, pixels)
    assert asked[0][0].shape == asked[0][1].shape == (4, 3, SIDE, SIDE)
    torch.testing.assert_close(losses["loss"], plain["loss"] + 0.5 * losses["perceptual"])
    with pytest.raises(ShapeError, match=r"weight of 0.5 needs a perceptual distance"):
        CompactLoss(config)


def test_features_are_the_thumbnail_square_by_square() -> None:
    tokenizer = make("direct").eval()
    latents = tokenizer.encode(frames(3))
    decoder = tokenizer.decoder
    assert isinstance(decoder, compact.PixelDecoder)
    small, image = decoder.draw(latents)
    assert (small.shape, image.shape) == ((3, 3, SIDE // 2, SIDE // 2), (3, 3, SIDE, SIDE))
    squares = F.pixel_unshuffle(small - 0.5, 4).flatten(2).transpose(1, 2)
    torch.testing.assert_close(tokenizer.features(latents), squares)
    assert squares.shape == (3, 4, 48)


@pytest.mark.parametrize("form", ["direct", "masked"])
def test_a_checkpoint_loads_as_saved_without_the_frozen_parts(form: str, tmp_path: Path) -> None:
    tokenizer = make(form).eval()
    tokenizer.save(tmp_path, {"note": "small"}, half_precision=False)
    options = parts() if form == "masked" else {}
    loaded = CompactTokenizer.load(tmp_path, **options)
    pixels = frames(3)
    latents = tokenizer.encode(pixels)
    assert torch.equal(loaded.encode(pixels), latents)
    saved, read = tokenizer.state_dict(), loaded.state_dict()
    assert saved.keys() == read.keys()
    assert all(torch.equal(saved[name], read[name]) for name in saved)
    # Where in memory weights lie may decide in which order a product is summed up.
    torch.testing.assert_close(loaded.decode(latents), tokenizer.decode(latents), rtol=1e-5, atol=1e-6)
    assert loaded.fingerprint == tokenizer.fingerprint
    if form == "masked":
        assert not any("weight" in name and "encoder" in name for name in load_file(tmp_path / "model.safetensors"))
        other = Greys()
        nn.init.constant_(other.scale, 2.0)
        codec = ImageCodec(CodecConfig("stand-in", SIDE), other, size=Greys.size, grid=SIDE // 4)
        with pytest.raises(CheckpointError, match="trained with weights"):
            CompactTokenizer.load(tmp_path, **parts() | {"codec": codec})


def test_the_fingerprint_follows_what_encodes() -> None:
    tokenizer = make("direct")
    before = tokenizer.fingerprint
    nn.init.zeros_(tokenizer.decoder.input.bias)
    assert tokenizer.fingerprint == before
    nn.init.constant_(tokenizer.qformer.output.bias, 1.0)
    assert tokenizer.fingerprint != before


def test_guidance_one_asks_once_and_the_seed_decides() -> None:
    tokenizer = make("masked").eval()
    decoder = tokenizer.decoder
    assert isinstance(decoder, compact.MaskedDecoder)
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.5)
    latents = tokenizer.encode(frames(8))
    with torch.no_grad():
        first, again, other = decoder(latents), decoder(latents), decoder(latents, seed=1)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        decoder.config = replace(decoder.config, guidance=1.0)
        nn.init.constant_(decoder.unknown, torch.nan)  # would show if it were asked
        assert decoder(latents).isfinite().all()


def test_the_lite_preset_is_small() -> None:
    tokenizer = CompactTokenizer(compact.lite())
    assert tokenizer.quantiser.size == 64_000
    assert 1e6 < sum(parameter.numel() for parameter in tokenizer.parameters()) < 2e6
    assert tokenizer.encode(torch.zeros(1, 64, 64, 3, dtype=torch.uint8)).shape == (1, 16, 6)


def test_the_paper_preset_has_the_published_sizes() -> None:
    config = compact.paper()
    assert (config.qformer.queries, config.qformer.depth, config.qformer.heads, config.qformer.width) == (16, 5, 8, 768)
    decoder = config.decoder
    assert isinstance(decoder, MaskedDecoderConfig)
    assert (decoder.depth, decoder.width, decoder.unmasking.steps, decoder.guidance) == (16, 1024, 16, 2.0)
    with torch.device("meta"):
        network = compact.QFormer(config.qformer, places=196, channels=768, size=6)
    assert network.queries.shape == (1, 16, 768)


def test_dinov3_gives_the_patch_tokens_behind_class_and_registers(tmp_path: Path) -> None:
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = DINOv3ViTModel(DINOv3ViTConfig(**sizes, num_register_tokens=4)).eval()
    model.save_pretrained(tmp_path)
    encoder = load_encoder(PatchEncoderConfig("dinov3-vitb16", 48, 48, source=str(tmp_path)))
    assert (encoder.grid, encoder.channels) == ((3, 3), 16)
    pixels = torch.randint(256, (2, 48, 48, 3), dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        tokens = model(pixel_values=((pixels / 255 - mean) / std).permute(0, 3, 1, 2)).last_hidden_state[:, 5:]
    torch.testing.assert_close(encoder(pixels).flatten(1, 2), tokens, rtol=1e-4, atol=1e-4)


def test_the_published_codec_turns_pixels_into_codes_and_back(tmp_path: Path) -> None:
    from transformers import JanusVQVAE, JanusVQVAEConfig

    torch.manual_seed(0)
    sizes = {"base_channels": 32, "num_res_blocks": 1, "latent_channels": 32, "num_embeddings": 50}
    JanusVQVAE(JanusVQVAEConfig(**sizes)).save_pretrained(tmp_path)
    codec = load_codec(CodecConfig(image_size=32, source=str(tmp_path)))
    assert (codec.grid, codec.size) == (2, 50)
    pixels = torch.randint(256, (3, 32, 32, 3), dtype=torch.uint8)
    codes = codec.encode(pixels)
    assert codes.shape == (3, 4)
    assert codes.max() < 50
    images = codec.decode(codes)
    assert images.shape == (3, 3, 32, 32)
    assert 0 <= images.min() <= images.max() <= 1
    with pytest.raises(ShapeError, match=r"uint8 images \[..., 32, 32, 3\], got torch.float32"):
        codec.encode(pixels.float())


@pytest.mark.parametrize("source", [None, "acid/not-in-any-cache"])
def test_nothing_is_ever_downloaded(source: str | None) -> None:
    with pytest.raises(EncoderError, match="hf download facebook/dinov3"):
        load_encoder(PatchEncoderConfig("dinov3-vitb16", 224, 224, source=source))
    with pytest.raises(EncoderError, match="name it as `source`"):
        load_codec(CodecConfig(source=source))
