"""Networks that torch compiles plan the same, to rounding."""

from __future__ import annotations

import shutil

import pytest
import torch

from acid.models.jepa import JepaConfig, JepaWorldModel
from acid.nn.causal import CausalConfig
from acid.nn.encoders import ConvConfig
from acid.nn.prefix_suffix import TransformerSize
from acid.planning import CEM, Planner, acid_cost
from acid.types import ActionScaler, Plan
from acid.verifier import FlowConfig, Verifier


def planned(*, compiled: bool) -> Plan:
    torch.manual_seed(0)
    network = CausalConfig(frames=2, width=8, depth=1, heads=2, head_width=4, mlp_width=8)
    config = JepaConfig(2, latent_size=8, projector_width=8, encoder=ConvConfig(), predictor=network)
    model = JepaWorldModel(config, ActionScaler((0.0, 0.0), (1.0, 1.0))).eval().requires_grad_(False)
    for parameter in model.dynamics[0].predictor.parameters():  # modulations start at zero, which would hide the layer
        torch.nn.init.normal_(parameter, std=0.3)
    verifier = Verifier(FlowConfig(8, 1, 2, TransformerSize(8, 1, 1, 2))).ready()
    if compiled:
        model.compile()
        verifier.compile()
    observation, goal, _ = model.fake_input(batch=1)
    search = CEM(samples=8, iterations=2, elites=3)
    return Planner(model, acid_cost(verifier, 0.5), search, horizon=3).plan(observation, goal)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_networks_give_the_same_plan(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    plain = planned(compiled=False)
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    fast = planned(compiled=True)
    torch.testing.assert_close(fast.actions, plain.actions, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fast.costs["consistency"], plain.costs["consistency"], rtol=1e-4, atol=1e-5)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs == 4, graphs  # a layer that sees one frame, two, and two anew; and the verifier
