"""The `config.json` of a world model published by stable-worldmodel, as a `JepaConfig`.

The file names Python functions (`_target_`) with their arguments. None is called: the names of the networks that we
have are known here. Every argument must be understood; one that would give another network than ours is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from acid.errors import CheckpointError, some
from acid.models import JepaConfig
from acid.nn.causal import CausalConfig
from acid.nn.encoders import ViTConfig

# The names that the versions of stable-worldmodel, and Le-WM's own repository before, give to one and the same network.
KINDS = {
    "stable_worldmodel.wm.lewm.LeWM": "lewm",
    "stable_worldmodel.wm.lewm.lewm.LeWM": "lewm",
    "stable_worldmodel.wm.LeWM": "lewm",
    "stable_worldmodel.wm.lewm.JEPA": "lewm",
    "stable_worldmodel.wm.lewm.module.JEPA": "lewm",
    "jepa.JEPA": "lewm",
    "stable_worldmodel.wm.pldm.PLDM": "pldm",
    "stable_worldmodel.wm.pldm.pldm.PLDM": "pldm",
}
_MODULES = (
    "stable_worldmodel.wm.lewm.module",
    "stable_worldmodel.wm.pldm.module",
    "stable_worldmodel.wm.lewm",
    "module",
)
_PREDICTORS = [f"{module}.{name}" for module in _MODULES for name in ("Predictor", "ARPredictor")]
_EMBEDDERS = [f"{module}.Embedder" for module in _MODULES]
_PROJECTORS = [f"{module}.MLP" for module in _MODULES]
_ENCODERS = ["stable_pretraining.backbone.utils.vit_hf", "stable_pretraining.backbone.vit_hf"]
_NORMS = ["torch.nn.BatchNorm1d", "torch.nn.modules.batchnorm.BatchNorm1d"]

_VIT_SIZES = {  # width, depth, heads
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}
_LARGEST, _DEEPEST = 65_536, 256  # far above any real network; a file that asks for more is not worth building


class Published(NamedTuple):
    """What a published configuration describes."""

    kind: str  # of world model, as in `acid.models.KINDS`
    config: Any  # a JepaConfig, or a DinoWMConfig if that is the kind


def parse(content: Any, file: str) -> Published:
    """The content of config.json as a network of ours; `file` is what errors call it."""
    if isinstance(content, dict) and "_target_" not in content and isinstance(content.get("model"), dict):
        content = content["model"]  # some versions save the configuration of the whole training
    model = _Call(content, file, KINDS)
    encoder = _encoder(model.part("encoder", _ENCODERS))
    actions = _actions(model.part("action_encoder", _EMBEDDERS))
    predictor, ends = _predictor(model.part("predictor", _PREDICTORS))
    first = _projector(model.part("projector", _PROJECTORS))
    last = _projector(model.part("pred_proj", _PROJECTORS))
    model.drop("embed_dim", "history_size", "idm")  # repeated in the parts, and a head that planning does not use
    model.finish()
    latents = ends | {
        "projector.output_dim": first.output,
        "action_encoder.emb_dim": actions.output,
        "pred_proj.input_dim": last.input,
        "pred_proj.output_dim": last.output,
    }
    _agree(file, "the features of an image", {"encoder.hidden_size": encoder.width, "projector.input_dim": first.input})
    _agree(file, "a latent", latents)
    _agree(file, "a projector", {"projector.hidden_dim": first.hidden, "pred_proj.hidden_dim": last.hidden})
    config = JepaConfig(
        action_size=actions.input,
        latent_size=first.output,
        projector_width=first.hidden,
        action_width=actions.hidden,
        encoder=encoder,
        predictor=predictor,
    )
    return Published(KINDS[model.target], config)


class _Sizes(NamedTuple):
    """Of a small network: what goes in, what lies between, what comes out."""

    input: int
    hidden: int
    output: int


def _encoder(call: _Call) -> ViTConfig:
    size = call.take("size", "tiny")
    if not isinstance(size, str) or size not in _VIT_SIZES:
        raise CheckpointError(f"{call.where}.size is {size!r}, not one of {', '.join(_VIT_SIZES)}")
    width, depth, heads = _VIT_SIZES[size]
    config = ViTConfig(
        image_size=call.size("image_size", 224),
        patch=call.size("patch_size", 16),
        width=call.size("hidden_size", width),
        depth=call.size("num_hidden_layers", depth, at_most=_DEEPEST),
        heads=call.size("num_attention_heads", heads),
        mlp_width=call.size("intermediate_size", 4 * width),  # of the named size, whatever hidden_size says
    )
    call.need(hidden_act="gelu", layer_norm_eps=1e-12, num_channels=3, qkv_bias=True)
    call.drop("pretrained", "use_mask_token", "hidden_dropout_prob", "attention_probs_dropout_prob")
    call.finish()
    if config.width % config.heads or config.patch > config.image_size:
        raise CheckpointError(
            f"{call.where} cannot be built: width {config.width} with {config.heads} heads, patches of {config.patch} "
            f"pixels in images of {config.image_size}"
        )
    return config


def _actions(call: _Call) -> _Sizes:
    sizes = _Sizes(call.size("input_dim", 10), call.size("smoothed_dim", 10), call.size("emb_dim", 10))
    call.need(mlp_scale=4)
    call.finish()
    return sizes


def _predictor(call: _Call) -> tuple[CausalConfig, dict[str, int]]:
    """The predictor, and the widths that ours does not tell apart."""
    width = call.size("hidden_dim")
    config = CausalConfig(
        frames=call.size("num_frames"),
        width=width,
        depth=call.size("depth", at_most=_DEEPEST),
        heads=call.size("heads"),
        head_width=call.size("dim_head", 64),
        mlp_width=call.size("mlp_dim"),
        dropout=call.share("dropout"),
    )
    size = call.size("input_dim")
    ends = {
        "predictor.hidden_dim": width,
        "predictor.input_dim": size,
        "predictor.output_dim": call.size("output_dim", size),
    }
    call.drop("emb_dropout")  # at work in training only
    call.finish()
    if config.heads == 1 and config.head_width == width:
        raise CheckpointError(f"{call.where} has a single head of its own width, and so no output map, which ours has")
    return config, ends


def _projector(call: _Call) -> _Sizes:
    size = call.size("input_dim")
    sizes = _Sizes(size, call.size("hidden_dim"), call.size("output_dim", size))
    norm = call.part("norm_fn", _NORMS)  # without one it would be a layer norm
    norm.need(_partial_=True)
    norm.finish()
    if call.take("act_fn", None) is not None:
        raise CheckpointError(f"{call.where}.act_fn is set; only the default, GELU, can be loaded")
    call.finish()
    return sizes


class _Call:
    """A `_target_` and its arguments. Reading one takes it away; what is left in the end was not understood."""

    def __init__(self, values: Any, where: str, known: Collection[str]) -> None:
        if not isinstance(values, dict) or not isinstance(values.get("_target_"), str):
            raise CheckpointError(f"{where} must be an object that names a _target_, so this is no published model")
        self.where = where
        self.target: str = values["_target_"]
        self._left = {name: value for name, value in values.items() if name not in ("_target_", "_convert_")}
        if self.target not in known:
            raise CheckpointError(f"{where} is a {self.target!r}, which cannot be loaded; known are {', '.join(known)}")

    def part(self, name: str, known: Collection[str]) -> _Call:
        if self._left.get(name) is None:
            raise CheckpointError(f"{self.where} has no {name}, which our network cannot do without")
        return _Call(self._left.pop(name), f"{self.where}: {name}", known)

    def take(self, name: str, default: Any) -> Any:
        return self._left.pop(name, default)

    def size(self, name: str, default: int | None = None, *, at_most: int = _LARGEST) -> int:
        """A whole number; null and nothing mean the default."""
        value = self.take(name, None)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= at_most:
            raise CheckpointError(f"{self.where}.{name} must be a whole number from 1 to {at_most}, got {value!r}")
        return value

    def share(self, name: str) -> float:
        value = self.take(name, 0.0)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
            raise CheckpointError(
                f"{self.where}.{name} must be a number from 0 up to but not including 1, got {value!r}"
            )
        return float(value)

    def need(self, **values: Any) -> None:
        """Arguments that our network has no setting for: absent or exactly this."""
        for name, value in values.items():
            found = self.take(name, value)
            if found != value:
                raise CheckpointError(f"{self.where}.{name} is {found!r}; only {value!r} can be loaded")

    def drop(self, *names: str) -> None:
        """Arguments without influence on what the trained network computes."""
        for name in names:
            self._left.pop(name, None)

    def finish(self) -> None:
        if self._left:
            raise CheckpointError(f"{self.where} sets {some(sorted(self._left))}, which our network does not have")


def _agree(file: str, what: str, widths: Mapping[str, int]) -> None:
    if len(set(widths.values())) > 1:
        told = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise CheckpointError(f"{file} gives {what} several widths, where our network has one: {told}")
