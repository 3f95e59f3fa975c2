"""The paper's figure of the verifier: its parts, and which token sees which, measured on the network itself."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from acid.evaluation.table import markdown
from acid.report.figures import draw_matrix
from acid.report.shapes import Matrix
from acid.tables.table import Findings, Table
from acid.verifier import PAPER, FlowConfig, Verifier

TOKENS = ("z_t", "z_t+1", "noisy action")


def mask() -> list[list[bool]]:
    """Whether each token (row) sees each token (column): whether its output changes with the other's input.

    Asked of a network of the paper's size with random weights, by gradients.
    """
    torch.manual_seed(0)
    network = Verifier(FlowConfig(latent_size=PAPER.width, tokens=1, action_size=2, size=PAPER)).flow.transformer
    prefix = torch.randn(1, 2, PAPER.width, requires_grad=True)
    suffix = torch.randn(1, 1, PAPER.width, requires_grad=True)
    memory = network.remember(prefix)
    answer = network.answer(suffix, memory)
    outputs = [memory[-1].value[:, :, 0], memory[-1].value[:, :, 1], answer]  # what the last layer makes of each token
    return [[*_sees(output, prefix), *_sees(output, suffix)] for output in outputs]


def _sees(output: Tensor, tokens: Tensor) -> list[bool]:
    """Whether an output depends on each of the tokens [1, T, W]."""
    (found,) = torch.autograd.grad(output.square().sum(), tokens, retain_graph=True, allow_unused=True)
    return [False] * tokens.shape[1] if found is None else (found.abs().sum(-1) > 0)[0].tolist()


def _steps() -> list[str]:
    return [
        "The latents z_t and z_t+1 of two frames become the prefix, one token each (or P tokens each).",
        "A noisy action and its time τ become the suffix, a single token.",
        f"A transformer of {PAPER.depth} layers, {PAPER.heads} heads and width {PAPER.width} reads both.",
        "The suffix's output is mapped linearly to the velocity of the action.",
        "One Euler step from τ = 1 gives the action â that explains the transition.",
    ]


def show(findings: Findings) -> list[Matrix]:
    text = "The prefix attends only to itself; the suffix attends to everything. Found from the network by gradients."
    return [
        Matrix("The verifier and its attention mask", text, TOKENS, TOKENS, mask(), "token", "what it sees", _steps())
    ]


def draw(findings: Findings, folder: Path) -> list[Path]:
    return [draw_matrix(folder / "idm.png", matrix) for matrix in show(findings)]


def _tell(findings: Findings) -> list[str]:
    rows = [[name, *("yes" if sees else "no" for sees in row)] for name, row in zip(TOKENS, mask(), strict=True)]
    return [markdown(["sees", *TOKENS], rows, texts=4)]


IDM = Table(
    name="idm",
    title="Figure qual_idm: the verifier and its attention mask",
    studies=(),
    episodes=1,
    after=_tell,
    show=show,
    draw=draw,
    legend=("A row says what a token's output depends on, through all layers of the network.",),
)
