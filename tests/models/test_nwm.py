"""NWM on tokens, with small networks in both forms: rollout, its random numbers, learning, checkpoints, planning."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from acid import models
from acid.errors import ShapeError
from acid.models import Batch, NavigationWorldModel, nwm
from acid.models.compact import (
    CompactConfig,
    ConvFeaturesConfig,
    MaskedDecoderConfig,
    PixelDecoderConfig,
    QFormerConfig,
)
from acid.models.nwm import CDiTConfig, Memory, NWMConfig, NWMLoss, NWMLossConfig
from acid.nn.unmasking import Unmasking, unmask
from acid.planning import (
    CEM,
    ActionConsistency,
    Adaptive,
    Cost,
    DecodedDistance,
    Planner,
    StraightLine,
    VerifierView,
    draw_pool,
)
from acid.types import ActionScaler, Problem, WorldModel
from acid.verifier import FlowConfig, TransformerSize, Verifier

SCALER = ActionScaler((0.3125, 0.0, 0.0), (0.9375, 1.0, 1.0))
SIDE, TOKENS, LEVELS = 16, 4, (5, 4, 3)
TOKENIZER = CompactConfig(
    ConvFeaturesConfig(SIDE, (8, 12)),
    QFormerConfig(queries=TOKENS, width=16, depth=1, heads=2, mlp_width=24),
    PixelDecoderConfig(SIDE, 16, 1, 2, 24, (8, 8)),
    levels=LEVELS,
)
SMALL = CDiTConfig(width=20, depth=2, heads=2, mlp_width=24)
FORMS = {
    "factorised": NWMConfig(3, TOKENIZER, SMALL, context=3, factorised=True, waves=8, unmasking=Unmasking(3)),
    "flat": NWMConfig(3, TOKENIZER, SMALL, context=3, waves=8, unmasking=Unmasking(2)),
    "published": NWMConfig(
        3, TOKENIZER, SMALL, 3, waves=8, unmasking=Unmasking(2, schedule="linear", cooling="squared"), published=True
    ),
}


def make(form: str = "factorised") -> NavigationWorldModel:
    """With weights that are nowhere zero, so that everything matters."""
    torch.manual_seed(0)
    model = NavigationWorldModel(FORMS[form], SCALER)
    for parameter in model.dynamics.parameters():
        if parameter.dim() > 1:  # large, because only what changes a choice is seen
            nn.init.normal_(parameter, std=0.5)
    return model.eval().requires_grad_(False)


def frames(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (*shape, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)


def actions(*shape: int) -> Tensor:
    return torch.randn(*shape, 3, generator=torch.Generator().manual_seed(2))


def latents(model: NavigationWorldModel, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return model.quantiser(2 * torch.randn(*shape, TOKENS, len(LEVELS), generator=generator))


@pytest.mark.parametrize("form", FORMS)
def test_it_is_a_world_model_of_discrete_latents(form: str) -> None:
    model = make(form)
    assert isinstance(model, WorldModel)
    assert model.encode(frames(2)).shape == (2, TOKENS, len(LEVELS))
    context = model.encode(frames(2, 3))
    assert context.shape == (2, 3, TOKENS, len(LEVELS))
    imagined = model.rollout(context, actions(2, 5, 4))
    assert imagined.shape == (2, 5, 4, TOKENS, len(LEVELS))
    assert torch.equal(model.from_tokens(model.to_tokens(imagined)), imagined)
    assert model.decode(imagined).shape == (2, 5, 4, SIDE, SIDE, 3)
    assert len(imagined.flatten(0, 2).unique(dim=0)) > 10  # candidates and steps differ


@pytest.mark.parametrize("form", FORMS)
def test_a_rollout_is_one_frame_after_another(form: str) -> None:
    """Remembered keys and values give what a context that is read anew at every step gives."""
    model = make(form)
    model.unmasking = Unmasking(3, temperature=0.0)
    chosen = actions(2, 3, 5)
    whole = model.rollout(latents(model, 2, 3), chosen)
    for candidate in range(3):
        context = latents(model, 2, 3)
        for step in range(5):
            new = model.rollout(context, chosen[:, candidate : candidate + 1, step : step + 1])[:, 0, 0]
            assert torch.equal(new, whole[:, candidate, step])
            context = torch.cat([context[:, 1:], new[:, None]], 1)


def test_keys_and_values_are_computed_once_per_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    model, remembered = make(), []
    original = model.dynamics.remember
    monkeypatch.setattr(model.dynamics, "remember", lambda f, *o: (remembered.append(f.shape[:2]), original(f, *o))[1])
    model.rollout(latents(model, 2, 3), actions(2, 4, 5))
    assert remembered == [(2, 3)] + [(8, 1)] * 4  # the context of each problem, then each new frame but the last


def test_what_is_imagined_depends_on_seed_and_problem_alone() -> None:
    model, context, chosen = make(), latents(make(), 3, 3), actions(3, 4, 3)
    imagined = model.rollout(context, chosen, seeds=[1, 2, 3])
    assert torch.equal(model.rollout(context[1:2], chosen[1:2, 2:], seeds=[2]), imagined[1:2, 2:])
    assert not torch.equal(model.rollout(context, chosen, seeds=[1, 9, 3])[1], imagined[1])
    assert torch.equal(model.rollout(context, chosen), model.rollout(context, chosen, seeds=[0, 0, 0]))
    model.unmasking = Unmasking(3, temperature=0.0)
    assert torch.equal(model.rollout(context, chosen, seeds=[1, 2, 3]), model.rollout(context, chosen))


def test_many_candidates_are_imagined_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, context, chosen = make(), latents(make(), 2, 3), actions(2, 7, 2)
    whole = model.rollout(context, chosen)
    monkeypatch.setattr(NavigationWorldModel, "cpu_candidates", 4)
    assert torch.equal(model.rollout(context, chosen), whole)


def test_too_few_frames_repeat_the_oldest_and_too_many_lose_them() -> None:
    model, chosen = make(), actions(2, 2, 2)
    context = latents(model, 2, 5)
    assert torch.equal(model.rollout(context, chosen), model.rollout(context[:, 2:], chosen))
    assert torch.equal(
        model.rollout(context[:, 0], chosen), model.rollout(context[:, :1].expand(-1, 3, -1, -1), chosen)
    )
    assert not torch.equal(model.rollout(context[:, 2:], chosen), model.rollout(context[:, 3:], chosen))


@pytest.mark.parametrize("form", FORMS)
def test_context_action_and_time_all_matter(form: str) -> None:
    model = make(form)
    dynamics = model.dynamics
    tokens = model.to_tokens(latents(model, 1, 3))
    hidden = torch.ones(1, TOKENS, dtype=torch.bool)
    now = torch.zeros(1, TOKENS, len(dynamics.sizes), dtype=torch.long)

    def logits(tokens: Tensor, action: Tensor, elapsed: int = 1) -> Tensor:
        modulations = dynamics.condition(action, elapsed)
        return dynamics(now, hidden, modulations, dynamics.look(tokens, None, modulations))

    base, zero = logits(tokens, torch.zeros(1, 3)), torch.zeros(1, 3)
    assert base.shape == (1, TOKENS, sum(dynamics.sizes))
    for dimension in range(3):
        moved = zero.clone()
        moved[0, dimension] = 0.02  # the spread of NWM's candidates in their first dimension
        assert (logits(tokens, moved) - base).abs().max() > 1e-3
    assert (logits(tokens, zero, 4) - base).abs().max() > 1e-3
    assert (logits(tokens.flip(1), zero) - base).abs().max() > 1e-3  # the order of frames


def test_a_fresh_network_ignores_everything_but_starts_from_the_mask() -> None:
    """AdaLN-zero: every block begins as the identity."""
    torch.manual_seed(0)
    model = NavigationWorldModel(FORMS["factorised"], SCALER)
    dynamics, tokens = model.dynamics, model.to_tokens(latents(model, 2, 3))
    hidden = torch.ones(2, TOKENS, dtype=torch.bool)
    now = torch.zeros(2, TOKENS, len(LEVELS), dtype=torch.long)
    logits = dynamics(now, hidden, dynamics.condition(actions(2)), dynamics.aged(dynamics.remember(tokens)))
    torch.testing.assert_close(logits[0], logits[1])


@pytest.mark.parametrize(
    ("form", "steps", "share"), [("factorised", 250, 0.8), ("flat", 150, 0.5), ("published", 150, 0.5)]
)
def test_it_learns_what_an_action_does(form: str, steps: int, share: float) -> None:
    """The next frame is the last one with all its tokens moved by one place, left or right by the sign of yaw.

    The flat forms are slower: in these few steps they learn what may follow (by chance 0.25 would be right), and both
    directions are as likely to them.
    """
    torch.manual_seed(0)
    config = FORMS[form]
    model = NavigationWorldModel(replace(config, predictor=CDiTConfig(32, 2, 2, 64)), SCALER)
    loss = NWMLoss(NWMLossConfig(history_mask=0.1), model)
    optimiser = torch.optim.AdamW(model.dynamics.parameters(), lr=4e-3)
    codes = model.quantiser.from_indices(torch.tensor([0, 13, 26, 59]))  # a few only, so that seconds suffice

    def batch() -> tuple[Tensor, Tensor]:
        past = codes[torch.randint(4, (64, 3, TOKENS))]
        chosen = 0.3 * torch.randn(64, 3, 3)
        left, right = past[:, -1].roll(-1, 1), past[:, -1].roll(1, 1)
        new = torch.where(chosen[:, -1, 2].view(-1, 1, 1) > 0, right, left)
        return torch.cat([past, new[:, None]], 1), chosen

    for _ in range(steps):
        optimiser.zero_grad()
        loss(model, Batch(*batch()))["loss"].backward()
        optimiser.step()
    model.eval()
    model.unmasking = Unmasking(2, temperature=0.0)
    frames, chosen = batch()
    right = model.rollout(frames[:, :-1], chosen[:, None, -1:])[:, 0, 0] == frames[:, -1]
    wrong = model.rollout(frames[:, :-1], -chosen[:, None, -1:])[:, 0, 0] == frames[:, -1]
    assert right.all(-1).float().mean() > share
    assert form != "factorised" or wrong.all(-1).float().mean() < 0.6


def test_hidden_history_is_not_seen() -> None:
    model = make()
    tokens = model.to_tokens(latents(model, 2, 3))
    hidden = torch.zeros(2, 3, TOKENS, dtype=torch.bool)
    hidden[:, 1, 2] = True
    changed = tokens.clone()
    changed[:, 1, 2] = (tokens[:, 1, 2] + 1) % torch.tensor(LEVELS)
    for one, other in zip(
        model.dynamics.remember(tokens, hidden), model.dynamics.remember(changed, hidden), strict=True
    ):
        assert torch.equal(one.keys, other.keys)
    assert not torch.equal(model.dynamics.remember(tokens)[0].keys, model.dynamics.remember(changed)[0].keys)


@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_holds_the_tokenizer_too(form: str, tmp_path: Path) -> None:
    model = make(form)
    models.save(model, "nwm", tmp_path, {})
    loaded = models.load(tmp_path)
    assert isinstance(loaded, NavigationWorldModel)
    pixels, chosen = frames(2, 3), actions(2, 3, 2)
    assert torch.equal(loaded.encode(pixels), model.encode(pixels))
    assert torch.equal(loaded.rollout(loaded.encode(pixels), chosen), model.rollout(model.encode(pixels), chosen))


def test_presets() -> None:
    lite = models.build("nwm", "lite", SCALER)
    assert isinstance(lite, NavigationWorldModel)
    assert lite.config.context == 4
    assert 1e6 < sum(parameter.numel() for parameter in lite.dynamics.parameters()) < 3e6
    assert lite.rollout(lite.encode(torch.zeros(1, 64, 64, 3, dtype=torch.uint8)), torch.zeros(1, 2, 2, 3)).shape == (
        *(1, 2, 2),
        *(16, 6),
    )
    paper = nwm.paper(3)
    assert (paper.predictor.depth, paper.predictor.width, paper.predictor.heads) == (12, 768, 12)
    assert paper.unmasking.steps == 8
    with torch.device("meta"):
        dynamics = nwm.TokenDynamics(paper, (64_000,), 16)
    assert dynamics.embed.table.weight.shape == (64_001, 768)
    assert dynamics.head is None  # the table is the output's as well


@pytest.mark.slow
def test_the_published_sizes_run(tmp_path: Path) -> None:
    """Tokenizer, frozen networks around it and world model, all of full size and untrained, on one window of frames."""
    from transformers import DINOv3ViTConfig, DINOv3ViTModel, JanusVQVAE, JanusVQVAEConfig

    base = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
    DINOv3ViTModel(DINOv3ViTConfig(**base, num_register_tokens=4)).save_pretrained(tmp_path / "encoder")
    JanusVQVAE(JanusVQVAEConfig()).save_pretrained(tmp_path / "codec")
    preset = nwm.paper(3)
    encoder, decoder = preset.tokenizer.encoder, preset.tokenizer.decoder
    assert isinstance(decoder, MaskedDecoderConfig)
    decoder = replace(
        decoder, codec=replace(decoder.codec, source=str(tmp_path / "codec")), unmasking=Unmasking(1), guidance=1.0
    )  # the full network, asked once instead of 32 times
    tokenizer = replace(preset.tokenizer, encoder=replace(encoder, source=str(tmp_path / "encoder")), decoder=decoder)
    model = NavigationWorldModel(replace(preset, tokenizer=tokenizer), SCALER)
    assert 2e8 < sum(parameter.numel() for parameter in model.dynamics.parameters()) < 2.5e8
    window = model.encode(torch.randint(256, (1, 5, 224, 224, 3), dtype=torch.uint8))
    assert window.shape == (1, 5, 16, 6)
    imagined = model.rollout(window[:, :4], torch.zeros(1, 1, 1, 3))
    assert imagined.shape == (1, 1, 1, 16, 6)
    assert model.decode(imagined[:, 0]).shape == (1, 1, 224, 224, 3)
    loss = NWMLoss(NWMLossConfig(), model)(model, Batch(window, torch.zeros(1, 4, 3)))["loss"]
    loss.backward()
    assert loss.item() == pytest.approx(math.log(64_000), rel=0.15)  # of guessing
    assert all(weight.grad is not None for weight in model.dynamics.parameters())


def test_nonsense_is_refused() -> None:
    model = make()
    with pytest.raises(ShapeError, match=r"actions of size 3, got \[2, 1, 1, 2\]"):
        model.rollout(latents(model, 2), torch.zeros(2, 1, 1, 2))
    with pytest.raises(ShapeError, match=r"latents must be \[2, P, D\]"):
        model.rollout(latents(model, 3), actions(2, 1, 1))
    with pytest.raises(ShapeError, match="2 problems, 1 seeds"):
        model.rollout(latents(model, 2), actions(2, 1, 1), seeds=[0])
    with pytest.raises(ShapeError, match="the model takes actions of size 3, the scaler makes 2"):
        NavigationWorldModel(FORMS["flat"], ActionScaler((0.0, 0.0), (1.0, 1.0)))


def test_nwms_planning_with_pictures_as_the_goal_and_a_verifier_of_pictures() -> None:
    model = make()
    config = FlowConfig(48, 4, 3, TransformerSize(12, 1, 2), steps=10, channels=(8,))
    verifier = Verifier(config, ActionScaler((0.2, 0.0, 0.0), (0.1, 0.1, 0.1))).ready()
    goal = DecodedDistance(model.decode, lambda a, b: (a - b).square().mean((1, 2, 3)))
    units = lambda a: verifier.scaler.normalise(model.scaler.denormalise(a))  # noqa: E731
    consistency = ActionConsistency(VerifierView(verifier, model.features, units), Adaptive(0.3))
    planner = Planner(
        model,
        Cost([goal, consistency]),
        CEM(samples=6, iterations=1, elites=2),
        horizon=3,
        parametrisation=StraightLine(),
        repeats=3,
    )
    plan = planner.plan(frames(2, 3), frames(2), seed=5)
    assert plan.actions.shape == (2, 3, 3)
    assert plan.imagined.shape == (2, 4, TOKENS, len(LEVELS))
    assert plan.consistency is not None
    assert plan.consistency.shape == (2, 3)
    assert plan.imagined.isfinite().all()
    again = planner.plan(frames(2, 3), frames(2), seed=5)
    assert torch.equal(again.actions, plan.actions)
    pool = draw_pool(planner, Problem(model.encode(frames(2, 3)), model.encode(frames(2))), seed=5)
    assert torch.equal(pool.choose(pool.evaluate(planner.cost).total, 2), plan.actions)


def test_a_context_of_shared_and_own_frames_is_that_of_repeated_ones() -> None:
    dynamics, (problems, candidates) = make().dynamics, (2, 3)
    block, width = dynamics.blocks[0].cross, dynamics.config.predictor.width
    shared, own = torch.randn(2, problems, 1, TOKENS, width), torch.randn(2, problems, candidates, TOKENS, width)
    frames = [Memory(*shared), Memory(*own), Memory(*(2 * own))]
    joined = [
        torch.stack([one.expand_as(own[0]) for one in parts], 2).flatten(0, 1) for parts in zip(*frames, strict=True)
    ]
    with torch.no_grad():
        assert all(map(torch.equal, block.aged_frames(frames, candidates), block.aged(Memory(*joined))))


def test_unmasking_with_the_network_reveals_all() -> None:
    model = make()
    dynamics = model.dynamics
    contexts = dynamics.aged(dynamics.remember(model.to_tokens(latents(model, 2, 3))))
    modulations = dynamics.condition(actions(2))
    found = unmask(lambda t, h: dynamics(t, h, modulations, contexts), (2, TOKENS), dynamics.sizes, Unmasking(4))
    assert (found < torch.tensor(LEVELS)).all()
