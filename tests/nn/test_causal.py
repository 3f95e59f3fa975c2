"""`unroll` against a rollout that recomputes its whole window at every step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from acid.nn.causal import CausalConfig, CausalTransformer

LATENT = 6
WIDTH = 16
ROWS = 7


def make_network(frames: int, *, depth: int = 3) -> CausalTransformer:
    torch.manual_seed(0)
    config = CausalConfig(frames=frames, width=WIDTH, depth=depth, heads=3, head_width=5, mlp_width=20)
    network = CausalTransformer(config, LATENT).double().eval()
    for parameter in network.parameters():  # modulations start at zero, which would hide most of the network
        nn.init.normal_(parameter, std=0.3)
    return network


@pytest.fixture
def finish() -> Callable[[Tensor], Tensor]:
    torch.manual_seed(1)
    return nn.Linear(WIDTH, LATENT).double()


def naive_rollout(
    network: CausalTransformer, start: Tensor, conditions: Tensor, finish: Callable[[Tensor], Tensor]
) -> Tensor:
    latents = [start]
    for t in range(conditions.shape[1]):
        first = max(0, t + 1 - network.config.frames)
        features = network(torch.stack(latents[first:], 1), conditions[:, first : t + 1])
        latents.append(finish(features[:, -1]))
    return torch.stack(latents[1:], 1)


def problem(horizon: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    start = torch.randn(ROWS, LATENT, generator=generator, dtype=torch.float64)
    return start, torch.randn(ROWS, horizon, WIDTH, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("frames", [1, 2, 3, 5])
@pytest.mark.parametrize("horizon", [1, 3, 5, 8])
@pytest.mark.parametrize("depth", [1, 3])
def test_unroll_is_the_naive_rollout(frames: int, horizon: int, depth: int, finish: Callable[[Tensor], Tensor]) -> None:
    network = make_network(frames, depth=depth)
    start, conditions = problem(horizon)
    unrolled = network.unroll(start, conditions, finish)
    assert unrolled.shape == (ROWS, horizon, LATENT)
    torch.testing.assert_close(unrolled, naive_rollout(network, start, conditions, finish), rtol=1e-9, atol=1e-9)


def test_gradients_of_unroll_are_those_of_the_naive_rollout(finish: Callable[[Tensor], Tensor]) -> None:
    network = make_network(3)
    start, conditions = problem(5)
    gradients = []
    for rollout in (network.unroll, lambda *args: naive_rollout(network, *args)):
        inputs = start.clone().requires_grad_(), conditions.clone().requires_grad_()
        gradients.append(torch.autograd.grad(rollout(*inputs, finish)[:, -1].square().sum(), inputs))
    for ours, naive in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, naive, rtol=1e-8, atol=1e-10)
    # Every action within the window's reach of the last step matters, directly or through the latents it leads to.
    assert (gradients[0][1].abs().sum((0, 2)) > 0).all()


def test_a_later_action_changes_no_earlier_latent(finish: Callable[[Tensor], Tensor]) -> None:
    network = make_network(3)
    start, conditions = problem(5)
    changed = conditions.clone()
    changed[:, 2] += 1
    before, after = (network.unroll(start, c, finish) for c in (conditions, changed))
    assert torch.equal(before[:, :2], after[:, :2])
    assert (before[:, 2:] - after[:, 2:]).abs().amin(dim=(0, 2)).gt(0).all()


def test_a_later_frame_changes_no_earlier_feature() -> None:
    network = make_network(4)
    _, conditions = problem(4)
    latents = torch.randn(ROWS, 4, LATENT, dtype=torch.float64)
    changed = latents.clone()
    changed[:, 2] += 1
    before, after = network(latents, conditions), network(changed, conditions)
    torch.testing.assert_close(before[:, :2], after[:, :2], rtol=0, atol=0)
    assert not torch.isclose(before[:, 2:], after[:, 2:]).all(-1).any()


def test_rows_do_not_see_each_other(finish: Callable[[Tensor], Tensor]) -> None:
    network = make_network(3)
    start, conditions = problem(5)
    together = network.unroll(start, conditions, finish)
    alone = network.unroll(start[2:3], conditions[2:3], finish)
    torch.testing.assert_close(together[2:3], alone, rtol=1e-9, atol=1e-9)


def test_a_fresh_network_ignores_the_actions(finish: Callable[[Tensor], Tensor]) -> None:
    """AdaLN-zero: every block starts as the identity."""
    network = CausalTransformer(CausalConfig(frames=3, width=WIDTH, depth=2, heads=2, head_width=4), LATENT).double()
    start, conditions = problem(4)
    network.eval()
    assert torch.equal(network.unroll(start, conditions, finish), network.unroll(start, -conditions, finish))
