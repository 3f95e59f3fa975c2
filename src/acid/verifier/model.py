"""What the verifier and the policy share: a fitted flow with its scaler and report, from data or from a folder."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from acid import checkpoint
from acid.device import resolve_device
from acid.errors import AcidWarning, CheckpointError
from acid.loop import Progress, train
from acid.nn.budget import building
from acid.nn.prefix_suffix import TransformerSize
from acid.types import ActionScaler
from acid.verifier.directions import Directions
from acid.verifier.fitting import LITE_FIT, FitConfig, FlowFit, fit_scaler, normalise_rows
from acid.verifier.flow import LITE, SMALL, ActionFlow, FlowConfig
from acid.verifier.progress import ProgressLines
from acid.verifier.report import FlowReport
from acid.verifier.transitions import Transitions


class FlowModel(nn.Module):
    """An action flow, the scaler of its actions and what held-out data say about it."""

    kind: ClassVar[str]
    fitted_to: str | None = None  # fingerprint of the world model whose latents it was fitted to, where that is known

    def __init__(self, config: FlowConfig, scaler: ActionScaler | None = None) -> None:
        super().__init__()
        self.config = config
        self.scaler = scaler
        self.report: FlowReport | None = None
        self.flow = ActionFlow(config)

    @classmethod
    def fit_transitions(
        cls,
        transitions: Transitions,
        *,
        training: FitConfig = LITE_FIT,
        folder: Path | None = None,
        device: torch.device | None = None,
        progress: Progress | None = None,
        **network: Any,
    ) -> Self:
        """Fit to transitions whose actions are in environment units; `.report` tells how well it went.

        With a folder, an interrupted fit continues from there. All else is as in `prepare`.
        """
        model, fit = cls.prepare(transitions, training=training, **network)
        description = {"network": asdict(model.config), "data": fit.fingerprint()}
        train(
            model.flow,
            fit.loss,
            fit.batches,
            training,
            folder,
            description=description,
            device=device,
            progress=progress or ProgressLines(f"fitting a {cls.kind}", training.steps),
        )
        model.report = fit.report()
        if not model.report.tells:
            warnings.warn(f"this {cls.kind} tells nothing. {model.report.verdict}", AcidWarning, stacklevel=3)
        return model.ready()

    @classmethod
    def prepare(
        cls,
        transitions: Transitions,
        *,
        training: FitConfig,
        size: TransformerSize | None = None,
        merge: bool = False,
        channels: tuple[int, ...] = (),
        euler_steps: int = 1,
        network: str = "prefix-suffix",
        scaler: ActionScaler | None = None,
    ) -> tuple[Self, FlowFit]:
        """A fresh model and what it will be fitted to, transitions whose actions are in environment units.

        Without a size, one vector a frame gets a SMALL network, a map of tokens a LITE one.
        Without a scaler, one is fitted: mean and standard deviation of each dimension over the training transitions.
        A tenth of the episodes is held out, or of the transitions where there are fewer than ten episodes. `merge` and
        `channels` decide how frames are read, `euler_steps` how the fitted flow is integrated, `network` which
        of NETWORKS it is: see `FlowConfig`.
        """
        chosen, held_out = transitions.split(training.held_out, training.seed)
        scaler = scaler or fit_scaler(transitions.actions[transitions.start[chosen]])
        transitions = replace(transitions, actions=normalise_rows(transitions.actions, scaler))
        _, tokens, latent_size = transitions.latents.shape
        config = FlowConfig(
            latent_size,
            tokens,
            scaler.size,
            size or (SMALL if tokens == 1 else LITE),
            steps=euler_steps,
            merge=merge,
            channels=channels,
            network=network,
            conditions=transitions.conditions,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(training.seed)
            with building(f"the configuration of the {cls.kind}"):
                model = cls(config, scaler)
        model.to(transitions.latents.device)
        return model, FlowFit(model.flow, transitions, chosen, held_out, training)

    @property
    def directions(self) -> Directions | None:
        """Which directions of an action it tells, if that was measured."""
        return None if self.report is None else self.report.directions

    def ready(self) -> Self:
        """Itself, frozen for inference; gradients still reach the latents."""
        return self.eval().requires_grad_(False)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Let torch compile the inference; arguments are those of `torch.compile`."""
        self.flow.infer = torch.compile(self.flow.infer, *args, **kwargs)

    def save(
        self, folder: str | Path, *, metadata: Mapping[str, Any] | None = None, half_precision: bool = False
    ) -> None:
        """Write weights, configuration, scaler, report and whatever else should be remembered to a folder."""
        known: dict[str, Any] = {} if self.report is None else {"report": asdict(self.report)}
        known |= {} if self.fitted_to is None else {"built_on": {"model": self.fitted_to}}
        checkpoint.save(
            folder,
            kind=self.kind,
            config=self.config,
            state=self,
            scaler=self.scaler,
            metadata={**known, **(metadata or {})},
            dtype=torch.float16 if half_precision else None,
        )

    @classmethod
    def load(cls, folder: str | Path, *, device: str | torch.device = "cpu") -> Self:
        """The model as it was saved, ready for inference."""
        stored = checkpoint.load(folder, cls.kind)
        if stored.scaler is None:
            raise CheckpointError(
                f"{folder} holds no action statistics, so its {cls.kind} cannot be used; fit it again"
            )
        model = checkpoint.restore(
            stored, lambda: cls(checkpoint.config_from(FlowConfig, stored.config), stored.scaler), folder
        )
        if "report" in stored.metadata:
            model.report = checkpoint.config_from(FlowReport, stored.metadata["report"])
        model.fitted_to = stored.built_on.get("model")
        return model.ready().to(resolve_device(str(device)))
