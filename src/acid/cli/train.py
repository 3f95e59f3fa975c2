"""`acid train`: one part of a cell."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from acid.cli.progress import bar, training_bar
from acid.errors import look_up

Scale = Literal["lite", "paper"]


@dataclass(frozen=True)
class Train:
    """Train one part of a cell: the world model first (of nwm the tokenizer), then what builds on its latents."""

    part: Annotated[Literal["tokenizer", "model", "verifier", "policy", "decoder", "readout"], tyro.conf.Positional]
    task: str = "reacher"
    model: str = "lewm"
    scale: Scale = "lite"
    data: Path | None = None
    """Default: data/TASK.h5; for nwm also a folder of RECON's files."""
    out: Path | None = None
    """Folder of the cell; the part goes into a subfolder. Default: runs/TASK/MODEL"""
    steps: int | None = None
    seed: int = 0
    change: dict[str, float] = field(default_factory=dict)
    """Other settings of a Le-WM or PLDM, e.g. objective.sigreg 0.09 network.latent_size 32 encoder.keypoints 0."""
    threads: int = 1

    def run(self) -> None:
        torch.set_num_threads(self.threads)
        data = self.data or Path("data") / f"{self.task}.h5"
        out = self.out or Path("runs") / self.task / self.model
        look_up(self._trainers(), self.part, f"part of a cell of {self.model}")(data, out)
        print(f"wrote {out / self.part}")

    def _trainers(self) -> dict[str, Callable[[Path, Path], None]]:
        """What trains each part that a cell of this world model has, given dataset and folder of the cell."""
        from acid.training import navigation, token_model

        if self.model in navigation.KINDS:
            return {
                "tokenizer": self._train_tokenizer,
                "model": self._train_navigation,
                "verifier": self._train_navigation_verifier,
            }
        model = self._train_token_model if self.model in token_model.KINDS else self._train_world_model
        return {"model": model} | dict.fromkeys(("verifier", "policy", "decoder", "readout"), self._train_on_latents)

    def _train_world_model(self, data: Path, out: Path) -> None:
        from acid.training import world_model

        recipe = world_model.recipe(self.model, self.scale, steps=self.steps, seed=self.seed, changes=self.change)
        with training_bar("train", recipe.loop.steps) as progress:
            world_model.train_world_model(data, out / "model", recipe, progress=progress)
        _print_json(out / "model", "validation")

    def _train_token_model(self, data: Path, out: Path) -> None:
        from acid.training import token_model

        recipe = token_model.recipe(self.scale, steps=self.steps, seed=self.seed)
        with bar("encode", "frame") as encoding, training_bar("train", recipe.loop.steps) as progress:
            token_model.train_token_model(data, out / "model", recipe, progress=progress, encoding=encoding)
        _print_json(out / "model", "validation")

    def _train_tokenizer(self, data: Path, out: Path) -> None:
        from acid.models import compact
        from acid.nn.lpips import load_lpips
        from acid.training import navigation, tokenizer

        recipe = tokenizer.recipe(self.scale, steps=self.steps, seed=self.seed)
        frames = navigation.open_frames(data, compact.PRESETS[recipe.preset]().image_size)
        with training_bar("train tokenizer", recipe.loop.steps) as progress:
            tokenizer.train_tokenizer(frames, out / "tokenizer", recipe, perceptual=load_lpips(), progress=progress)
        _print_json(out / "tokenizer", "validation")

    def _train_navigation(self, data: Path, out: Path) -> None:
        from acid.nn.lpips import load_lpips
        from acid.training import navigation

        tokenizer, dataset = self._tokenise(data, out)
        recipe = navigation.recipe(self.scale, steps=self.steps, seed=self.seed)
        with training_bar("train", recipe.loop.steps) as progress:
            navigation.train_navigation(
                dataset, tokenizer, out / "model", recipe, perceptual=load_lpips(), progress=progress
            )
        _print_json(out / "model", "validation")

    def _train_navigation_verifier(self, data: Path, out: Path) -> None:
        from acid.training import navigation

        tokenizer, dataset = self._tokenise(data, out)
        recipe = navigation.verifier_recipe(self.scale, steps=self.steps, seed=self.seed)
        with training_bar("train verifier", recipe.fit.steps) as progress:
            fitted = navigation.train_navigation_verifier(
                dataset, tokenizer, out / "verifier", recipe, progress=progress
            )
        print(fitted.report)

    def _tokenise(self, data: Path, out: Path) -> Any:
        """The cell's tokenizer and the dataset as it sees it."""
        from acid.models.compact import CompactTokenizer
        from acid.training import navigation

        tokenizer = CompactTokenizer.load(out / "tokenizer")
        with bar("tokenise", "frame") as progress:
            frames = navigation.open_frames(data, tokenizer.config.image_size)
            return tokenizer, navigation.tokenise(tokenizer, frames, progress=progress)

    def _train_on_latents(self, data: Path, out: Path) -> None:
        from acid.training import decoder, inverse, readout
        from acid.training.latents import load_latents

        with bar("encode", "frame") as progress:
            dataset = load_latents(out / "model", data, progress=progress)
        target = out / self.part
        if self.part == "decoder":
            tokens = dataset.latents.shape[1]
            drawing = decoder.recipe(self.scale, tokens=tokens, steps=self.steps, seed=self.seed)
            with training_bar("train decoder", drawing.loop.steps) as progress:
                decoder.train_decoder(dataset, target, drawing, progress=progress)
            return
        if self.part == "readout":
            reading = readout.recipe(self.scale, steps=self.steps, seed=self.seed)
            with training_bar("train readout", reading.loop.steps) as progress:
                readout.train_readout(dataset, target, self.task, reading, progress=progress)
            return _print_json(target, "chamfer")
        chosen = inverse.recipe(self.scale, steps=self.steps, seed=self.seed)
        fit = inverse.train_verifier if self.part == "verifier" else inverse.train_policy
        with training_bar(f"train {self.part}", chosen.fit.steps) as progress:
            fitted = fit(dataset, target, chosen, progress=progress)
        print(fitted.report)


def _print_json(folder: Path, entry: str) -> None:
    from acid import checkpoint

    print(json.dumps(checkpoint.load(folder).metadata[entry], indent=2))
