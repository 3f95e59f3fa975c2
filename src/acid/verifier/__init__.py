"""Inverse dynamics: the action between two latents, to verify a world model's imagination or to act without one."""

from acid.nn.prefix_suffix import TransformerSize
from acid.verifier.directions import Directions
from acid.verifier.fitting import LITE_FIT, PAPER_FIT, FitConfig
from acid.verifier.flow import LITE, PAPER, SMALL, ActionFlow, FlowConfig, flow_matching_loss
from acid.verifier.policy import Policy
from acid.verifier.report import FlowReport
from acid.verifier.transitions import Transitions, goal_pairs, successive
from acid.verifier.verifier import Verifier

__all__ = [
    "LITE",
    "LITE_FIT",
    "PAPER",
    "PAPER_FIT",
    "SMALL",
    "ActionFlow",
    "Directions",
    "FitConfig",
    "FlowConfig",
    "FlowReport",
    "Policy",
    "TransformerSize",
    "Transitions",
    "Verifier",
    "flow_matching_loss",
    "goal_pairs",
    "successive",
]
