"""Encoders see what is in the picture."""

import torch

from acid.nn.encoders import ConvConfig, Keypoints, build_encoder


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


def test_what_a_frame_is_encoded_to_does_not_depend_on_its_neighbours_when_planning():
    encoder = build_encoder(ConvConfig(normalise=True, keypoints=4)).eval()
    images = torch.randn(5, 3, 64, 64)
    torch.testing.assert_close(encoder(images)[2:3], encoder(images[2:3]), atol=1e-5, rtol=1e-5)
