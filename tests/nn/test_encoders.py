"""Encoders see what is in the picture."""

import torch

from acid.nn.encoders import ConvConfig, Detectors, Keypoints, build_encoder


def test_keypoints_follow_a_spot():
    points = Keypoints(1, 1, 16)
    with torch.no_grad():
        points.response.weight.zero_()
        points.response.weight[..., 1, 1] = 50.0  # responds to the spot itself
        points.response.bias.zero_()
    line = torch.linspace(-2, 2, 16)
    for row, column in ((0, 0), (3, 12), (15, 7)):
        picture = torch.zeros(1, 1, 16, 16)
        picture[0, 0, row, column] = 1.0
        torch.testing.assert_close(points(picture)[0], torch.stack([line[row], line[column]]), atol=1e-3, rtol=0)


def test_keypoints_lie_in_the_picture():
    found = Keypoints(3, 5, 8)(torch.randn(7, 3, 8, 8))
    assert found.shape == (7, 10)
    assert found.abs().max() <= 2


def test_a_convolutional_encoder_with_and_without_extras_gives_one_vector_a_frame():
    for config in (ConvConfig(width=24), ConvConfig(width=24, normalise=True, keypoints=4)):
        encoder = build_encoder(config)
        assert encoder(torch.randn(3, 3, 64, 64)).shape == (3, 24)
    assert build_encoder(ConvConfig(width=24, detectors=(4, 8))).forward(torch.randn(3, 3, 64, 64)).shape == (3, 32)


def test_detectors_tell_what_is_seen_and_not_where():
    torch.manual_seed(0)
    detectors = Detectors((4, 8, 8), normalise=False)
    shape, other = torch.rand(2, 3, 12, 12)

    def seen(what, row, column):
        picture = torch.zeros(1, 3, 64, 64)
        picture[0, :, row : row + 12, column : column + 12] = what
        return detectors(picture)

    here = seen(shape, 16, 16)
    torch.testing.assert_close(here, seen(shape, 32, 24), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(here, seen(other, 16, 16), atol=1e-3)
    assert not torch.allclose(here, seen(shape.flip(2), 16, 16), atol=1e-3)


def test_what_a_frame_is_encoded_to_does_not_depend_on_its_neighbours_when_planning():
    encoder = build_encoder(ConvConfig(normalise=True, keypoints=4)).eval()
    images = torch.randn(5, 3, 64, 64)
    torch.testing.assert_close(encoder(images)[2:3], encoder(images[2:3]), atol=1e-5, rtol=1e-5)
