from dataclasses import replace

import pytest
import torch

from acid.errors import CheckpointError, ShapeError
from acid.models.decoder import Decoder, DecoderConfig

SMALL = DecoderConfig(8, image_size=8, patch=2, width=8, depth=1, heads=1, mlp_width=8)


def test_the_published_size_draws_images():
    assert Decoder(DecoderConfig(16))(torch.randn(1, 2, 1, 16)).shape == (1, 2, 224, 224, 3)


def test_patches_land_where_their_queries_are():
    made, latent = Decoder(replace(SMALL, shared_head=False)).eval(), torch.randn(1, 1, 8)
    with torch.no_grad():
        before = made(latent)
        made.bias[6] += 1  # second row, third column
        changed = (made(latent) - before).abs().amax((0, 3)) > 0.5
    expected = torch.zeros(8, 8, dtype=torch.bool)
    expected[2:4, 4:6] = True
    assert torch.equal(changed, expected)


def test_it_learns_to_draw_a_latent():
    torch.manual_seed(0)
    made = Decoder(DecoderConfig(2, image_size=16, patch=8, width=32, depth=1, heads=2, mlp_width=64))
    latents = torch.eye(2)[:, None]
    pictures = torch.rand(2, 16, 16, 3)
    optimiser = torch.optim.Adam(made.parameters(), 3e-3)
    for _ in range(150):
        loss = made.error(latents, pictures * 255)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.02 < pictures.var()
    assert made.pixels(latents).dtype == torch.uint8


def test_round_trip_and_bad_folders(tmp_path):
    made = Decoder(SMALL).eval()
    made.save(tmp_path, {})
    latent = torch.randn(1, 1, 8)
    torch.testing.assert_close(Decoder.load(tmp_path)(latent), made(latent).detach(), atol=0.02, rtol=0.02)  # 16 bits
    with pytest.raises(CheckpointError, match="no checkpoint folder"):
        Decoder.load(tmp_path / "nowhere")
    with pytest.raises(ShapeError, match="not a multiple of the patch"):
        Decoder(DecoderConfig(8, image_size=60))
