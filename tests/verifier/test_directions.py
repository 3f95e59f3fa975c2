"""Which directions of an action a verifier tells."""

from __future__ import annotations

import math

import pytest
import torch

from acid import Verifier
from acid.errors import PlanningError, ShapeError
from acid.nn.prefix_suffix import TransformerSize
from acid.planning import ActionConsistency, Adaptive
from acid.types import Trajectory
from acid.verifier import Directions, FitConfig

RANDOM = torch.Generator().manual_seed(0)


def sums_only(count: int = 4000) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions of two numbers of which only the sum is known, and the errors of inferring them."""
    actions = torch.randn(count, 2, generator=RANDOM)
    inferred = actions.mean(1, keepdim=True).expand(-1, 2)
    return actions, actions - inferred


def test_a_sum_that_is_told_is_found_although_neither_number_is() -> None:
    found = Directions.measure(*sums_only())
    assert found.shares[0] == pytest.approx(0, abs=1e-6)
    assert found.shares[1] == pytest.approx(1, abs=1e-3)
    assert found.told == 1
    told = found.part("told", like=torch.zeros(1))[:, 0]
    assert abs(float(told[0] - told[1])) < 0.05 * float(told.norm())  # along (1, 1)
    assert str(found).startswith("two frames tell 1 of 2 directions of an action")


def test_coordinates_are_in_standard_deviations_of_the_data() -> None:
    actions, errors = sums_only()
    stretched = actions * torch.tensor([10.0, 0.1])
    found = Directions.measure(stretched, errors * torch.tensor([10.0, 0.1]))
    coordinates = stretched @ found.part("all", like=stretched)
    torch.testing.assert_close(coordinates.T.cov(), torch.eye(2), atol=1e-3, rtol=0)
    assert found.shares == pytest.approx(Directions.measure(actions, errors).shares, abs=1e-3)  # units do not matter


def test_directions_in_which_the_data_never_go_do_not_divide_by_zero() -> None:
    actions = torch.randn(100, 1, generator=RANDOM).expand(-1, 3)
    found = Directions.measure(actions, 0.5 * actions)
    assert all(math.isfinite(number) for axis in found.axes for number in axis)
    assert all(math.isfinite(share) for share in found.shares)


class Knowing:
    """A verifier that infers the mean of the two numbers for both."""

    def __init__(self, directions: Directions | None) -> None:
        self.directions = directions

    def infer(self, latent: torch.Tensor, next_latent: torch.Tensor) -> torch.Tensor:
        return (next_latent - latent)[..., 0, :]


def trajectory(actions: torch.Tensor, moved: torch.Tensor) -> Trajectory:
    latents = torch.cat([torch.zeros(1, 1, 1, 1, 2), moved.cumsum(2).unsqueeze(-2)], 2)
    return Trajectory(latents, actions)


def test_the_told_part_sees_only_the_imagination_and_the_untold_only_the_action() -> None:
    verifier = Knowing(Directions.measure(*sums_only()))
    told, untold = (ActionConsistency(verifier, Adaptive(), part, part=part) for part in ("told", "untold"))
    actions = torch.tensor([[[[1.0, -1.0]]]])  # its sum is 0
    still = torch.zeros(1, 1, 1, 2)
    assert float(told(trajectory(actions, still), still)) == pytest.approx(0, abs=0.02)
    assert float(untold(trajectory(actions, still), still)) == pytest.approx(2, rel=0.1)  # 1.4 deviations, squared
    away = torch.tensor([[[[2.0, 2.0]]]])
    assert float(told(trajectory(actions, away), still)) > 5


def test_all_is_the_paper_s_residual() -> None:
    verifier = Knowing(Directions.measure(*sums_only()))
    actions = torch.randn(1, 3, 2, 2, generator=RANDOM)
    imagined = Trajectory(torch.randn(1, 3, 3, 1, 2, generator=RANDOM), actions)
    usual = ActionConsistency(Knowing(None))
    assert torch.equal(ActionConsistency(verifier).per_step(imagined), usual.per_step(imagined))


def test_what_cannot_be_divided_is_refused() -> None:
    everything = Directions((0.1, 0.2), ((1.0, 0.0), (0.0, 1.0)))
    with pytest.raises(PlanningError, match="no untold part"):
        ActionConsistency(Knowing(everything), part="untold")
    with pytest.raises(PlanningError, match="does not say which directions"):
        ActionConsistency(Knowing(None), part="told")
    with pytest.raises(PlanningError, match="not both"):
        ActionConsistency(Knowing(everything), part="told", path=lambda a: a)
    with pytest.raises(PlanningError, match="did you mean 'told'"):
        ActionConsistency(Knowing(everything), part="tolt")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="2 directions need"):
        Directions((0.1, 0.2), ((1.0, 0.0),))


def test_a_fitted_verifier_measures_its_directions_and_keeps_them(tmp_path) -> None:
    actions = torch.randn(600, 2, generator=RANDOM)
    latents = torch.zeros(600, 1, 1)
    latents[1::2, 0, 0] = actions[::2].sum(1)  # episodes of one step, of which the frames show the sum of the action
    actions[1::2] = torch.nan
    fit = FitConfig(steps=400, batch_size=64, learning_rate=3e-3)
    size = TransformerSize(width=24, depth=1, heads=2)
    verifier = Verifier.fit(latents, actions, torch.arange(600) // 2, size=size, training=fit)
    assert verifier.directions is not None
    assert verifier.directions.told == 1
    assert "two frames tell 1 of 2 directions" in str(verifier.report)
    verifier.save(tmp_path / "verifier")
    assert Verifier.load(tmp_path / "verifier").directions == verifier.directions
