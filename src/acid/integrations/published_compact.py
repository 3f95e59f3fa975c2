"""CompACT as its authors write it: the world model `{step}.pth.tar`, and the tokenizer, a Lightning `.ckpt`.

Both become our networks in their published form, name by name. Sizes follow from the shapes of the weights; numbers of
heads, levels and settings of the sampling from the configuration in the file, or else from the published one.
The tokenizer's file holds its VQGAN, which is converted too, and DINOv3, which is not: that is loaded by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from acid.errors import CheckpointError, some
from acid.integrations import published_cdit
from acid.integrations.pickled import read_pickled, state_of
from acid.integrations.published_weights import Content, Converted, Weights, guarded, mapping
from acid.models import compact
from acid.models.compact import CompactConfig, CompactTokenizer, MaskedDecoderConfig, QFormerConfig
from acid.models.nwm import NWMConfig
from acid.models.patch_encoders import PatchEncoder, PatchEncoderConfig
from acid.models.vqgan import VQGANConfig
from acid.nn.unmasking import Unmasking

FOLDER, WORLD, LATEST = "checkpoints", ".pth.tar", "latest.pth.tar"
PREFIX = "tokenizer."
SOURCE = "facebook/dinov3-vitb16-pretrain-lvd1689m"
DINO_PATCHES = "compact_tokenizer.encoder.dinov3_model.patch_embed.proj.weight"
HEADS = 8  # of the tokenizer's networks
_STREAMS = {
    "codes": ("norm1.linear", "attn.to_{}", "attn.to_out.0", "ff"),
    "tokens": ("norm1_context.linear", "attn.add_{}_proj", "attn.to_add_out", "ff_context"),
}


def find(folder: Path, name: str | None = None) -> Path | None:
    """The file with this name, or the latest world model, or the only file that may be CompACT's."""
    if name is not None:
        return folder / name if name.endswith((WORLD, ".ckpt")) else None
    for place in (folder / FOLDER, folder):
        for pattern in (f"*{WORLD}", "*.ckpt"):
            found = sorted(file for file in place.glob(pattern) if not re.search(r"_(weight|object)", file.name))
            if place / LATEST in found:
                return place / LATEST
            if len(found) > 1:
                names = [str(file.relative_to(folder)) for file in found]
                raise CheckpointError(f"{folder} holds {some(names)}: choose one with weights=...")
            if found:
                return found[0]
    return None


def open_file(file: Path) -> Content | None:
    """None if it is something else than a world model or tokenizer of CompACT's authors, or a world model of NWM's."""
    content = mapping(read_pickled(file))
    if file.name.endswith(WORLD):
        averaged = state_of(content.get("ema"))
        if not any(name.startswith("y_embedder.") for name in averaged):
            raise CheckpointError(f"{file} holds no averaged weights (ema) of a world model like NWM's; fetch it again")
        found = Content(averaged, mapping(content.get("config", content.get("args"))), is_tokenizer=False)
        guarded(file, lambda: _refuse_variants(found))
        return found
    named = mapping(content.get("state_dict"))
    state = {k.removeprefix(PREFIX): v for k, v in named.items() if isinstance(k, str) and k.startswith(PREFIX)}
    if not state:
        return None
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    return Content(tensors, mapping(content.get("hyper_parameters")), is_tokenizer=True)


def world_model(content: Content, tokenizer: CompactTokenizer, file: Path) -> Converted:
    """The world model in our network; a CheckpointError says what differs from it."""
    found = guarded(file, lambda: _world_model(content, tokenizer.config))
    states = {"dynamics": found.state, "tokenizer": tokenizer.state_dict()}
    return Converted(found.config, {f"{part}.{k}": v for part, state in states.items() for k, v in state.items()})


def tokenizer(content: Content, file: Path, *, source: str | None = None, image_size: int | None = None) -> Converted:
    """The tokenizer in our network.

    source: a folder with DINOv3 ViT-B/16, or its name on the hub if it is cached. image_size: pixels along a side that
    DINOv3 looks at; default: as in the tokenizer's own training.
    """
    if not content.is_tokenizer:
        raise CheckpointError(
            f"{file} holds a world model, which needs the dataset it plans on (--data) and a tokenizer"
        )
    return guarded(file, lambda: _tokenizer(content, source or SOURCE, image_size))


def check_encoder(content: Content, made: CompactTokenizer, file: Path) -> None:
    """The DINOv3 that was found must be the one that the tokenizer was trained with, which lies in its file."""
    wanted, encoder = content.state.get(DINO_PATCHES), made.encoder
    known = encoder.network.state_dict().values() if isinstance(encoder, PatchEncoder) else ()
    alike = [value for value in known if wanted is not None and value.shape == wanted.shape]
    if wanted is None or not any(torch.allclose(value.float(), wanted.float(), atol=1e-4) for value in alike):
        raise CheckpointError(f"the encoder that was found is not the DINOv3 of {file}; name its folder as encoder")


def _world_model(content: Content, tokenizer: CompactConfig) -> Converted:
    weights = Weights(content.state)
    table, positions = weights.take("x_embedder.weight", 2), weights.take("pos_embed", 3)
    _check_tokenizer(content, tokenizer, codes=len(table) - 1, tokens=positions.shape[1])
    context = len(positions) - 1
    if context < 1 or content.setting("dataset.context_size", context) != context:
        raise CheckpointError(f"its positions {list(positions.shape)} are not those of its context and a next frame")
    if not torch.equal(weights.take("final_layer.weight", 2), table):
        raise CheckpointError("its output final_layer.weight is not its table of tokens, which ours is")
    unmasking = _unmasking(content, "model.diffusion", steps=8, schedule="linear", places=positions.shape[1])
    sizes, waves, state = published_cdit.trunk(content, weights, table.shape[1])
    state |= {f"{name}.table.weight": table for name in ("embed", "embed_context")} | {"positions": positions}
    weights.finish()
    config = NWMConfig(
        len(published_cdit.NUMBERS),
        tokenizer,
        sizes,
        context=context,
        waves=waves,
        unmasking=unmasking,
        published=True,
        forget=_forget(content, unmasking),
    )
    return Converted(config, state)


def _check_tokenizer(content: Content, tokenizer: CompactConfig, *, codes: int, tokens: int) -> None:
    """A tokenizer that is not the one of the training would give tokens that mean something else."""
    levels, made = tokenizer.levels, (math.prod(tokenizer.levels), tokenizer.qformer.queries)
    told = tuple(content.setting(f"{_COMPACT}.quantizer.levels", levels))
    size = tokenizer.encoder.image_size
    seen = content.setting("dataset.image_size", size)
    if made != (codes, tokens):
        raise CheckpointError(
            f"it predicts {tokens} tokens of {codes} codes, the tokenizer makes {made[1]} of {made[0]}"
        )
    if not tokenizer.centred or told != levels:
        raise CheckpointError(f"the tokenizer is another one: its levels {levels} are not CompACT's {told}")
    if seen != size:
        raise CheckpointError(
            f"its frames have {seen} pixels along a side, and DINOv3 in the tokenizer looks at {size}: convert the "
            f"tokenizer with image_size={seen} (--image-size {seen})"
        )


def _forget(content: Content, unmasking: Unmasking) -> float:
    """The share that is hidden of the context; only one of the published samplers hides some."""
    default = 1.0 if content.setting("model.diffusion", {}) else 0.8
    kept = float(content.setting("model.diffusion.history_sample_t", default))
    share = math.cos(math.pi / 2 * kept) if unmasking.schedule == "cosine" else 1 - kept
    return round(share, 9)  # else a count of tokens that is just a whole number may be one less


def _refuse_variants(content: Content) -> None:
    for name, what in {
        "x_embedder.mask_token": "it predicts levels one by one (FSQDiscreteCDiT), of which no checkpoint is known",
        "null_action_embedding": "it was trained with guidance by actions, which is not sampled here",
    }.items():
        if name in content.state:
            raise CheckpointError(what)
    published_cdit.check_actions(content)


def _tokenizer(content: Content, source: str, image_size: int | None) -> Converted:
    weights = Weights(content.state)
    if not any(name.startswith("compact_tokenizer.encoder.dinov3_model.") for name in content.state):
        raise CheckpointError("it does not look through DINOv3; only tokenizers that do can be used")
    if weights.take("normalize_mean").any() or not (weights.take("normalize_std") == 1).all():
        raise CheckpointError("its pictures are normalised, which those of MAGE's VQGAN are not")
    if not content.setting("dataset.use_dino_image_for_compact", True):
        raise CheckpointError("its encoder sees pictures that are not normalised as DINOv3's are")
    weights.under("compact_tokenizer.encoder.dinov3_model.")
    state = {f"decoder.codec.{name}": value for name, value in weights.under("base_tokenizer.").items()}
    qformer, read = _qformer(weights, content)
    decoder, drawn = _decoder(weights, content, {name.removeprefix("decoder.codec."): v for name, v in state.items()})
    weights.finish()
    levels = tuple(content.setting(f"{_COMPACT}.quantizer.levels", compact.LEVELS))
    if len(levels) != len(read["qformer.output.weight"]):
        raise CheckpointError(f"its tokens have {len(read['qformer.output.weight'])} numbers, not levels {levels}")
    size = decoder.codec.image_size
    looked = image_size or content.setting("dataset.dinov2_image_size", size)
    encoder = PatchEncoderConfig("dinov3-vitb16", observation_size=size, image_size=looked, source=source)
    return Converted(CompactConfig(encoder, qformer, decoder, levels, centred=True), state | read | drawn)


_COMPACT = "model.tokenizer.compact_tokenizer"


def _qformer(weights: Weights, content: Content) -> tuple[QFormerConfig, dict[str, Tensor]]:
    start = "compact_tokenizer.encoder."
    depth = weights.depth(re.escape(start) + "qformer_layers")
    queries = weights.take(f"{start}query_tokens", 3)
    shown = content.state["compact_tokenizer.decoder.pos_embed_dec_latent"].shape[1]
    if queries.shape[1] != shown:
        raise CheckpointError(
            f"its Q-former has {queries.shape[1]} queries for {shown} tokens: registers are not known"
        )
    state = {"qformer.queries": queries}
    state |= {f"qformer.layers.layers.{k}": v for k, v in weights.under(f"{start}qformer_layers.").items()}
    for kind in ("weight", "bias"):
        state[f"qformer.layers.norm.{kind}"] = weights.take(f"{start}final_norm_layer.{kind}", 1)
    state |= weights.linear(f"{start}out_proj", "qformer.output")
    heads = content.setting(f"{_COMPACT}.encoder.num_attention_heads", HEADS)
    mlp_width = len(state["qformer.layers.layers.0.linear1.weight"])
    return QFormerConfig(shown, queries.shape[2], depth, heads, mlp_width, published=True), state


def _decoder(
    weights: Weights, content: Content, codec: Mapping[str, Tensor]
) -> tuple[MaskedDecoderConfig, dict[str, Tensor]]:
    start = "compact_tokenizer.decoder."
    depth = weights.depth(re.escape(start) + "blocks")
    state = dict(weights.linear(f"{start}in_proj", "decoder.input"))
    for theirs, ours in {
        "pos_embed_dec": "positions",
        "pos_embed_dec_latent": "token_positions",
        "latent_init": "joint.registers",
        "embeddings.weight": "embedding.weight",
        "last_ln.weight": "joint.norm.weight",
        "last_ln.bias": "joint.norm.bias",
    }.items():
        state[f"decoder.{ours}"] = weights.take(start + theirs)
    if not torch.equal(weights.take(f"{start}classification_head.weight"), state["decoder.embedding.weight"]):
        raise CheckpointError("its output classification_head.weight is not its table of codes, which ours is")
    places, width = state["decoder.positions"].shape[1:]
    for number in range(depth):
        for stream in _STREAMS:
            last = stream == "tokens" and number + 1 == depth
            ours = f"decoder.joint.layers.{number}.{stream}"
            state |= _stream(weights, f"{start}blocks.{number}.", stream, ours, width, last=last)
    scale = float(content.setting(f"{_COMPACT}.diffusion.cfg_scale", 2.0))
    config = MaskedDecoderConfig(
        _vqgan(codec, places),
        width,
        depth,
        content.setting(f"{_COMPACT}.decoder.num_attention_heads", HEADS),
        len(state["decoder.joint.layers.0.codes.mlp.0.weight"]),
        _unmasking(content, f"{_COMPACT}.diffusion", steps=16, schedule="cosine", places=places),
        guidance=1 + scale if scale >= 1 else 1.0,  # theirs is how far to go beyond what the tokens say
        joint=True,
    )
    return config, state


def _stream(weights: Weights, name: str, stream: str, ours: str, width: int, *, last: bool) -> dict[str, Tensor]:
    modulation, projection, out, mlp = _STREAMS[stream]
    state = dict(weights.linear(name + modulation, f"{ours}.modulation"))
    for kind in ("weight", "bias"):
        parts = [weights.take(f"{name}{projection.format(part)}.{kind}") for part in "qkv"]
        state[f"{ours}.qkv.{kind}"] = torch.cat(parts)
        if last:  # its scale comes before its shift
            state[f"{ours}.modulation.{kind}"] = state[f"{ours}.modulation.{kind}"].roll(width, 0)
    if not last:
        state |= weights.linear(name + out, f"{ours}.out")
        state |= weights.linear(f"{name}{mlp}.net.0.proj", f"{ours}.mlp.0")
        state |= weights.linear(f"{name}{mlp}.net.2", f"{ours}.mlp.2")
    return state


def _vqgan(state: Mapping[str, Tensor], places: int) -> VQGANConfig:
    weights = Weights(state)
    codes, size = state["quantize.embedding.weight"].shape
    channels = len(state["encoder.conv_in.weight"])
    levels = weights.depth(r"encoder\.down")
    widths = [len(state[f"encoder.down.{level}.block.0.conv1.weight"]) for level in range(levels)]
    blocks = weights.depth(r"encoder\.down\.0\.block")
    if math.isqrt(places) ** 2 != places or any(width % channels for width in widths):
        raise CheckpointError(
            f"its VQGAN has {places} codes a picture and channels {widths}, which do not fit together"
        )
    multipliers = tuple(width // channels for width in widths)
    return VQGANConfig(codes, size, channels, multipliers, blocks, math.isqrt(places))


def _unmasking(content: Content, where: str, *, steps: int, schedule: str, places: int) -> Unmasking:
    told = content.setting(f"{where}.schedule_type", schedule)
    if told not in ("cosine", "linear") or content.setting(f"{where}.sampling_method", "gumbel") != "gumbel":
        raise CheckpointError(f"its tokens are unmasked in a way that is not known here ({where}: {told})")
    if content.setting(f"{where}.top_k", None) or content.setting(f"{where}.top_p", None):
        raise CheckpointError(f"its tokens are sampled from the likeliest only ({where}: top_k or top_p)")
    steps = content.setting(f"{where}.num_timesteps", min(steps, places))
    if not 1 <= steps <= places:
        raise CheckpointError(f"its {places} tokens cannot be unmasked in {steps} steps ({where}.num_timesteps)")
    return Unmasking(
        steps,
        float(content.setting(f"{where}.temperature", 1.0)),
        schedule=told,
        cooling="squared",
        confidence="logit",
    )
