"""Unmasking: what is surest comes first, what is revealed stays, and noise is all that makes a difference."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from acid.errors import ShapeError
from acid.nn.unmasking import Unmasking, choose, gumbel, random_mask, unmask

SIZES = (3, 4)
PLACES = 8


def logits(seed: int = 0) -> Tensor:
    return 3 * torch.randn(2, 5, PLACES, sum(SIZES), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("steps", [1, 2, 8, 12])
def test_a_network_that_ignores_the_others_is_answered_by_its_most_likely_tokens(steps: int) -> None:
    fixed = logits()
    found = unmask(lambda tokens, hidden: fixed, (2, 5, PLACES), SIZES, Unmasking(steps))
    first, second = fixed.split(list(SIZES), -1)
    assert torch.equal(found, torch.stack([first.argmax(-1), second.argmax(-1)], -1))


def test_the_surest_are_revealed_first_and_stay() -> None:
    how, seen = Unmasking(4), []

    def predict(tokens: Tensor, hidden: Tensor) -> Tensor:
        seen.append((tokens, hidden))
        return logits(len(seen))

    unmask(predict, (2, 5, PLACES), SIZES, how)
    assert [int(hidden[0, 0].sum()) for _, hidden in seen] == [PLACES] + [how.hidden_after(s, PLACES) for s in range(3)]
    for (before, was_hidden), (after, hidden) in pairwise(seen):
        assert torch.equal(after[~was_hidden], before[~was_hidden])
        assert not (hidden & ~was_hidden).any()
    _, confidence = choose(logits(1), SIZES, None)
    first_hidden = seen[1][1]
    least_sure_revealed = confidence.masked_fill(first_hidden, torch.inf).amin(-1)
    assert (least_sure_revealed >= confidence.masked_fill(~first_hidden, -torch.inf).amax(-1)).all()


def test_the_schedule_is_a_cosine_that_ends_with_nothing_hidden() -> None:
    how = Unmasking(8)
    hidden = [how.hidden_after(step, 16) for step in range(8)]
    assert hidden == [15, 14, 13, 11, 8, 6, 3, 0]
    assert [round(how.temperature_at(step), 3) for step in (0, 7)] == [1, 0]
    assert Unmasking(1).temperature_at(0) == 0
    assert min(Unmasking(40).hidden_after(step, 16) for step in range(40)) == 0
    with pytest.raises(ShapeError, match="at least one step"):
        Unmasking(0)


def test_noise_draws_from_the_softmax() -> None:
    """With Gumbel noise the most likely choice is a draw: frequencies approach probabilities."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.tensor([0.0, 1.0, 2.0, 0.5, 0.0, -1.0, 0.3]).expand(20_000, 1, 7)
    drawn, _ = choose(scores, SIZES, gumbel((20_000, 1, 8), generator))
    frequency = drawn[..., 0].flatten().bincount(minlength=3) / len(drawn)
    torch.testing.assert_close(frequency, scores[0, 0, :3].softmax(0), atol=0.015, rtol=0)


def test_masks_of_training_hide_at_least_one_and_sometimes_all() -> None:
    torch.manual_seed(0)
    hidden = random_mask(4000, 16)
    counts = hidden.sum(1)
    assert (counts.min(), counts.max()) == (1, 16)
    assert abs(counts.float().mean() / 16 - 2 / torch.pi) < 0.05
    assert abs(hidden.float().mean(0) - 2 / torch.pi).max() < 0.06  # no place is favoured
    assert (random_mask(1000, 16, full=0.5).all(1).float().mean() - 0.5).abs() < 0.1


def test_the_published_way_to_unmask() -> None:
    """A linear schedule, noise by the square of what is left of the temperature, the greedy last step, logits as
    confidence."""
    how = Unmasking(4, temperature=0.5, schedule="linear", cooling="squared", confidence="logit")
    assert [how.hidden_after(step, 16) for step in range(4)] == [12, 8, 4, 0]
    assert [how.temperature_at(step) for step in range(4)] == [0.375**2, 0.25**2, 0.125**2, 0.0]
    logits = torch.tensor([[3.0, 2.9], [2.0, -9.0]])  # the second is surer, the first has the larger logit
    _, by_logit = choose(logits, (2,), None, by_logit=True)
    _, by_probability = choose(logits, (2,), None)
    assert by_logit.tolist() == [3.0, 2.0]
    assert by_probability.argmax() == 1


def test_published_noise_is_that_of_logits_divided_by_the_temperature() -> None:
    """CompACT divides logits by the temperature T and adds T times the noise, to choose tokens and to rank them."""
    scores = torch.randn(3, 6, 9, generator=torch.Generator().manual_seed(1))
    how = Unmasking(3, temperature=0.9, schedule="linear", cooling="squared", confidence="logit")
    random = torch.Generator().manual_seed(2)
    drawn = [gumbel((3, 6, 10), random) for _ in range(3)]
    tokens, hidden = torch.zeros(3, 6, dtype=torch.long), torch.ones(3, 6, dtype=torch.bool)
    for step in range(3):
        heat = 0.9 * (1 - (step + 1) / 3)
        divided = scores / max(heat, 1e-4)
        ids = (divided + heat * drawn[step][..., :9]).argmax(-1)
        sure = divided.gather(-1, ids[..., None])[..., 0] + heat * drawn[step][..., 9]
        tokens = torch.where(hidden, ids, tokens)
        order = torch.where(hidden, sure, torch.inf).argsort(-1)
        hidden = torch.zeros_like(hidden).scatter(1, order[:, : (4, 2, 0)[step]], True)
    noise = iter(drawn)
    found = unmask(lambda tokens, hidden: scores, (3, 6), (9,), how, noise=lambda: next(noise))
    assert torch.equal(found[..., 0], tokens)
    assert not torch.equal(tokens, scores.argmax(-1))
