import pytest
import torch

from acid.errors import CheckpointError, ShapeError
from acid.models import token_decoder
from acid.models.token_decoder import TokenDecoder, TokenDecoderConfig


@pytest.mark.parametrize(("preset", "grid", "side"), [("paper", 14, 224), ("lite", 6, 192)])
def test_presets_draw_images_of_the_observations_size(preset, grid, side):
    made = TokenDecoder(token_decoder.PRESETS[preset](8, grid))
    assert made.image_size == side
    assert made(torch.randn(2, 1, grid * grid, 8)).shape == (2, 1, side, side, 3)


def test_a_token_is_drawn_where_it_lies():
    torch.manual_seed(0)
    made, tokens = TokenDecoder(TokenDecoderConfig(4, grid=6, channels=(8, 8))).eval(), torch.randn(1, 36, 4)
    with torch.no_grad():
        before = made(tokens)
        tokens[0, 6 * 1 + 4] += 1  # second row, fifth column
        changed = (made(tokens) - before).abs().amax((0, 3)) > 0
    rows, columns = changed.any(1).nonzero(), changed.any(0).nonzero()
    assert 0 <= int(rows.min()) <= 2 <= 3 <= int(rows.max()) <= 7
    assert 4 <= int(columns.min()) <= 8 <= 9 <= int(columns.max())


def test_it_learns_to_draw_whatever_the_size_of_the_pictures():
    torch.manual_seed(0)
    made = TokenDecoder(TokenDecoderConfig(3, grid=4, channels=(16, 8)))
    tokens = torch.randn(2, 16, 3)
    pictures = (torch.rand(2, 4, 4, 3) * 255).repeat_interleave(4, 1).repeat_interleave(4, 2).to(torch.uint8)
    optimiser = torch.optim.Adam(made.parameters(), 1e-2)
    for _ in range(120):
        loss = made.error(tokens, pictures)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.3 * (pictures / 255).var()
    assert made.pixels(tokens).dtype == torch.uint8


def test_round_trip_and_bad_input(tmp_path):
    made = TokenDecoder(token_decoder.lite(4, 2)).eval()
    made.save(tmp_path, {})
    tokens = torch.randn(1, 4, 4)
    torch.testing.assert_close(TokenDecoder.load(tmp_path)(tokens), made(tokens).detach(), atol=0.02, rtol=0.02)
    with pytest.raises(CheckpointError, match="no checkpoint folder"):
        TokenDecoder.load(tmp_path / "nowhere")
    with pytest.raises(ShapeError, match=r"draws \[..., 4, 4\]"):
        made(torch.randn(1, 5, 4))
