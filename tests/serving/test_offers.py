"""Which conditions and searches of a cell can be served."""

from __future__ import annotations

import pytest

from acid.errors import AcidError
from acid.evaluation import Cell, SearchSpec
from acid.serving.cells import Offer

SPEC = SearchSpec("cem", 6, 2, 2, horizon=5)


@pytest.mark.parametrize(
    ("name", "spec", "reason"),
    [
        ("noop", SPEC, "the condition 'noop' does not plan"),
        ("policy-open", SPEC, "the condition 'policy-open' is for evaluation only"),
        ("acid-masked", SPEC, "the condition 'acid-masked' is for evaluation only"),
        ("acid", SearchSpec("cem", 6, 2, 2, horizon=5, execute=1), "clients execute what they like: leave --execute"),
    ],
)
def test_what_would_not_be_carried_out_is_refused(name: str, spec: SearchSpec, reason: str) -> None:
    with pytest.raises(AcidError, match=reason):
        Offer(Cell("reacher", "lewm"), name, 0.2, spec)


@pytest.mark.parametrize("name", ["original", "acid", "proposal-acid", "clipped"])
def test_what_plans_is_served(name: str) -> None:
    assert Offer(Cell("reacher", "lewm"), name, None, SPEC).name == name
