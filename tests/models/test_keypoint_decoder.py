from dataclasses import replace

import pytest
import torch

from acid.errors import ShapeError
from acid.models.keypoint_decoder import KeypointDecoder, KeypointDecoderConfig

SMALL = KeypointDecoderConfig(3, image_size=32, points=4, ground=2, hidden=8, width=16)


def test_it_draws_images_of_any_leading_shape():
    made, latents = KeypointDecoder(SMALL).eval(), torch.randn(2, 3, 1, 3)
    with torch.no_grad():
        images = made(latents)
        torch.testing.assert_close(made(latents[1, 2]), images[1, 2])
    assert images.shape == (2, 3, 32, 32, 3)
    assert made.pixels(latents).dtype == torch.uint8
    with pytest.raises(ShapeError, match=r"draws \[..., 1, 3\], got \[2, 3\]"):
        made(torch.zeros(2, 3))
    with pytest.raises(ShapeError, match="not a multiple of the patch"):
        KeypointDecoder(KeypointDecoderConfig(3, image_size=62))


def test_a_point_is_drawn_where_it_is():
    """x runs to the right and y down, as in the picture."""
    made = KeypointDecoder(replace(SMALL, image_size=64)).eval()
    with torch.no_grad():
        for value in made.points.parameters():
            value.zero_()
        made.log_radius.fill_(-2.0)
        nothing = made(torch.zeros(1, 1, 3))[0]
        made.points.bias.copy_(torch.tensor([0.6] * 4 + [-0.6] * 4 + [3.0] * 4))
        change = (made(torch.zeros(1, 1, 3))[0] - nothing).abs().sum(-1)
    assert change[:32, 32:].sum() > 0.9 * change.sum() > 0


def test_a_heavier_pixel_counts_more():
    made, latents = KeypointDecoder(SMALL), torch.zeros(1, 1, 3)
    pixels = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
    weight = torch.ones(1, 32, 32, 1)
    weight[:, :8] = 3
    each = made(latents).square()
    expected = (each.mean() + 2 * each[:, :8].sum() / each.numel()).detach()
    torch.testing.assert_close(made.error(latents, pixels, weight).detach(), expected)
