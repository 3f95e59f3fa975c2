"""Linear probes find what is linear, and nothing else; and run on a trained model's latents."""

import torch

from acid.training.probe import r2


def test_a_linear_map_is_found_and_noise_is_not():
    generator = torch.Generator().manual_seed(0)
    latents = torch.randn(600, 12, generator=generator, dtype=torch.double) * 3 + 1
    mixing = torch.randn(12, 2, generator=generator, dtype=torch.double)
    targets = latents @ mixing + 5
    noise = torch.randn(600, 1, generator=generator, dtype=torch.double)
    assert r2(latents[:400], targets[:400], latents[400:], targets[400:]) > 0.999
    assert r2(latents[:400], noise[:400], latents[400:], noise[400:]) < 0.1
    half = targets[:, :1] + noise * targets[:, :1].std()  # half of the variance is noise
    assert 0.35 < r2(latents[:400], half[:400], latents[400:], half[400:]) < 0.65
