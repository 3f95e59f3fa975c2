"""The two-call form against a plain transformer over the joint sequence with its mask written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from acid.errors import ShapeError
from acid.nn.embeddings import TimeEmbedding, sinusoidal
from acid.nn.prefix_suffix import PrefixSuffixTransformer, TransformerSize

SIZE = TransformerSize(width=24, depth=3, heads=3, mlp_ratio=2)


@pytest.fixture
def network() -> PrefixSuffixTransformer:
    torch.manual_seed(0)
    network = PrefixSuffixTransformer(SIZE)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # far from the small initial weights, so that every path matters
    return network.requires_grad_(False)


def masked_pass(network: PrefixSuffixTransformer, tokens: Tensor, prefix_length: int) -> Tensor:
    """All tokens [B, T, W] through every layer at once; prefix queries may not see suffix keys."""
    mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool)
    mask[:prefix_length, prefix_length:] = False
    heads, size = SIZE.heads, SIZE.width // SIZE.heads
    for block in network.blocks:
        qkv = block.qkv(block.attention_norm(tokens)).reshape(*tokens.shape[:2], 3, heads, size)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        scores = (query @ key.mT / size**0.5).masked_fill(~mask, -torch.inf)
        attended = (scores.softmax(-1) @ value).permute(0, 2, 1, 3).reshape(tokens.shape)
        tokens = tokens + block.attention_out(attended)
        tokens = tokens + block.mlp(block.mlp_norm(tokens))
    return network.norm(tokens)


@pytest.mark.parametrize(("prefix_length", "suffix_length"), [(2, 1), (7, 3)])
def test_remembered_prefix_answers_like_the_masked_pass(network, prefix_length, suffix_length):
    prefix = torch.randn(5, prefix_length, SIZE.width)
    memory = network.remember(prefix)
    for _ in range(3):  # one memory serves every suffix
        suffix = torch.randn(5, suffix_length, SIZE.width)
        expected = masked_pass(network, torch.cat([prefix, suffix], dim=1), prefix_length)[:, prefix_length:]
        torch.testing.assert_close(network.answer(suffix, memory), expected)
        torch.testing.assert_close(network(prefix, suffix), expected)


def test_prefix_does_not_see_the_suffix_in_the_reference(network):
    prefix = torch.randn(2, 4, SIZE.width)
    outputs = [
        masked_pass(network, torch.cat([prefix, torch.randn(2, 1, SIZE.width)], dim=1), 4)[:, :4] for _ in range(2)
    ]
    assert torch.equal(*outputs)


def test_answering_leaves_the_memory_as_it_was(network):
    memory = network.remember(torch.randn(3, 2, SIZE.width))
    before = [tensor.clone() for layer in memory for tensor in layer]
    network.answer(torch.randn(3, 1, SIZE.width), memory)
    assert all(torch.equal(b, t) for b, t in zip(before, (t for layer in memory for t in layer), strict=True))


def test_one_suffix_for_all_rows_equals_repeating_it(network):
    memory = network.remember(torch.randn(6, 2, SIZE.width))
    suffix = torch.randn(1, 1, SIZE.width)
    torch.testing.assert_close(network.answer(suffix, memory), network.answer(suffix.repeat(6, 1, 1), memory))


def test_every_weight_is_used(network):
    network.requires_grad_(True)
    network(torch.randn(3, 4, SIZE.width), torch.randn(3, 1, SIZE.width)).square().sum().backward()
    unused = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert unused == []


def test_last_layer_spends_nothing_on_prefix_outputs(network):
    *_, last = network.blocks
    calls = []
    last.mlp.register_forward_hook(lambda *_: calls.append("mlp"))
    last.attention_out.register_forward_hook(lambda *_: calls.append("attention"))
    memory = network.remember(torch.randn(3, 4, SIZE.width))
    assert calls == []
    network.answer(torch.randn(3, 1, SIZE.width), memory)
    assert calls == ["attention", "mlp"]


def test_impossible_sizes_are_named():
    with pytest.raises(ShapeError, match="width 100 must be a multiple of its 3 heads"):
        TransformerSize(width=100, heads=3)
    with pytest.raises(ShapeError, match="depth=0"):
        TransformerSize(depth=0)


def test_sinusoidal_tells_values_apart_and_fills_any_size():
    values = torch.linspace(0, 1, 50)
    for size in (8, 9):
        waves = sinusoidal(values, size)
        assert waves.shape == (50, size)
        distance = torch.cdist(waves, waves) + 10 * torch.eye(50)
        assert distance.min() > 1e-2
    assert F.mse_loss(sinusoidal(torch.tensor([3]), 8, shortest=1, longest=10), sinusoidal(torch.tensor([3.0]), 8)) > 0
    assert TimeEmbedding(12)(values).shape == (50, 12)
