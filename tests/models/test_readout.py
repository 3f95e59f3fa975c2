import numpy as np
import pytest
import torch

from acid.errors import ShapeError
from acid.models.readout import Readout, ReadoutConfig, chamfer
from acid.tasks import deformable


def test_chamfer_is_the_tasks_own():
    generator = np.random.default_rng(0)
    points, others = generator.normal(size=(7, 3)), generator.normal(size=(5, 3))
    ours = chamfer(torch.from_numpy(points)[None], torch.from_numpy(others)[None])
    assert ours.shape == (1,)
    assert float(ours) == pytest.approx(deformable.chamfer(points, others))


def test_it_learns_which_points_a_latent_shows_whatever_their_order():
    torch.manual_seed(0)
    latents = torch.randn(64, 2, 3)
    there = latents.flatten(1).view(64, 2, 3)  # each token is a point
    readout = Readout(ReadoutConfig(tokens=2, latent_size=3, points=2, width=64))
    optimiser = torch.optim.Adam(readout.parameters(), 3e-3)
    for _ in range(300):
        shuffled = there[:, torch.randperm(2)]
        loss = chamfer(readout(latents), shuffled).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.25 * chamfer(there.mean(0).expand_as(there), there).mean()


def test_round_trip_and_bad_input(tmp_path):
    readout = Readout(ReadoutConfig(tokens=2, latent_size=3)).eval()
    readout.save(tmp_path, {})
    latents = torch.randn(4, 5, 2, 3)
    assert readout(latents).shape == (4, 5, 40, 3)
    torch.testing.assert_close(Readout.load(tmp_path)(latents), readout(latents).detach(), atol=0.02, rtol=0.02)
    with pytest.raises(ShapeError, match=r"takes \[..., 2, 3\]"):
        readout(torch.randn(4, 3, 3))
