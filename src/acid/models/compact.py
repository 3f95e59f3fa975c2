"""CompACT: a frame as 16 discrete tokens, and back to pixels.

Features of the frame are read by 16 queries (a Q-former), each of which ends as a handful of numbers that are rounded
to levels (FSQ). The latent of a frame is these rounded numbers, [P, D] = [16, 6]: small, exact, and discrete.

Two decoders: one that draws pixels directly (`lite`), and a masked generative one that unmasks the codes of a frozen
VQGAN, given the tokens (`paper`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.errors import ShapeError
from acid.models.image_codecs import CodecConfig, ImageCodec, load_codec
from acid.models.joint import JointTransformer
from acid.models.patch_encoders import PatchEncoder, PatchEncoderConfig, digest, load_encoder
from acid.models.stored import StoredNetwork
from acid.models.vqgan import VQGAN, VQGANConfig
from acid.nn.fsq import FSQ
from acid.nn.pictures import Perceptual, check_pixels
from acid.nn.unmasking import Unmasking, gumbel, random_mask, unmask

LEVELS = (8, 8, 8, 5, 5, 5)  # 64 000 codes
_CPU_IMAGES = 64  # decoded at once; more take memory and gain nothing


@dataclass(frozen=True)
class ConvFeaturesConfig:
    """A convolutional encoder that is trained with the rest: patches, then one halving, to a map of side S/8."""

    image_size: int = 64
    channels: tuple[int, int] = (64, 128)


@dataclass(frozen=True)
class QFormerConfig:
    """published: as CompACT's authors do, read the features as they come, and normalise after every layer."""

    queries: int = 16
    width: int = 768
    depth: int = 5
    heads: int = 8
    mlp_width: int = 3072
    published: bool = False


@dataclass(frozen=True)
class PixelDecoderConfig:
    """A glance at the tokens that gives a thumbnail, and layers and convolutions that refine it."""

    image_size: int = 64
    width: int = 128
    depth: int = 1  # of the layers behind the glance
    heads: int = 4
    mlp_width: int = 256
    channels: tuple[int, int] = (48, 32)  # at a quarter and at half of the image's side


@dataclass(frozen=True)
class MaskedDecoderConfig:
    """A bidirectional transformer over the codes of a frozen VQGAN, with the tokens in front.

    joint: tokens and codes have weights of their own, as in the network of CompACT's authors, and the table of codes
    is also the output's. A VQGAN that is described by its sizes is a part of the checkpoint.
    """

    codec: CodecConfig | VQGANConfig = field(default_factory=CodecConfig)
    width: int = 1024
    depth: int = 16
    heads: int = 16
    mlp_width: int = 4096
    unmasking: Unmasking = field(default_factory=lambda: Unmasking(16))
    guidance: float = 2.0  # classifier-free: how far to go from what is likely to what the tokens say; 1: not beyond
    forget: float = 0.1  # probability in training that the tokens are not shown, which guidance needs
    joint: bool = False


@dataclass(frozen=True)
class CompactConfig:
    encoder: ConvFeaturesConfig | PatchEncoderConfig
    qformer: QFormerConfig
    decoder: PixelDecoderConfig | MaskedDecoderConfig
    levels: tuple[int, ...] = LEVELS
    centred: bool = False  # of the quantiser, see `FSQ`

    @property
    def image_size(self) -> int:
        encoder = self.encoder
        return encoder.image_size if isinstance(encoder, ConvFeaturesConfig) else encoder.observation_size


def paper() -> CompactConfig:
    """The published sizes; the sizes of images and of the VQGAN's code book are ours, being stated nowhere."""
    return CompactConfig(
        encoder=PatchEncoderConfig(
            "dinov3-vitb16", observation_size=224, image_size=224, source="facebook/dinov3-vitb16-pretrain-lvd1689m"
        ),
        qformer=QFormerConfig(),
        decoder=MaskedDecoderConfig(),
    )


def lite() -> CompactConfig:
    """64-px frames, about 1.3 M parameters, trained end to end on one CPU core in half an hour."""
    return CompactConfig(
        encoder=ConvFeaturesConfig(),
        qformer=QFormerConfig(width=128, depth=2, heads=4, mlp_width=256),
        decoder=PixelDecoderConfig(),
    )


PRESETS = {"paper": paper, "lite": lite}


def to_image(pixels: Tensor) -> Tensor:
    """uint8 [M, S, S, 3] to float [M, 3, S, S] in 0..1."""
    return pixels.permute(0, 3, 1, 2).float() / 255


class ConvFeatures(nn.Module):
    """uint8 pixels [M, S, S, 3] to features [M, S/8, S/8, C]."""

    def __init__(self, config: ConvFeaturesConfig) -> None:
        super().__init__()
        first, second = config.channels
        self.grid = (config.image_size // 8, config.image_size // 8)
        self.channels = second
        self.patches = nn.Conv2d(3, first, 6, 4, 1)
        self.around = nn.Conv2d(first, first, 3, 1, 1)
        self.halve = nn.Conv2d(first, second, 3, 2, 1)
        self.wider = nn.Conv2d(second, second, 3, 1, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        x = F.gelu(self.patches((to_image(pixels) * 2 - 1).contiguous(memory_format=torch.channels_last)))
        x = F.gelu(self.halve(x + F.gelu(self.around(x))))
        return (x + F.gelu(self.wider(x))).permute(0, 2, 3, 1)


def _layers(width: int, depth: int, heads: int, mlp_width: int, *, norm_first: bool = True) -> nn.TransformerDecoder:
    layer = nn.TransformerDecoderLayer(
        width, heads, mlp_width, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first
    )
    return nn.TransformerDecoder(layer, depth, norm=nn.LayerNorm(width))


class QFormer(nn.Module):
    """Features [M, h, w, C] to one vector per query [M, queries, size]."""

    def __init__(self, config: QFormerConfig, *, places: int, channels: int, size: int) -> None:
        super().__init__()
        width, published = config.width, config.published
        if published and channels != width:
            raise ShapeError(f"the published Q-former is as wide as its features: {width} is not {channels}")
        self.queries = nn.Parameter(torch.randn(1, config.queries, width))
        self.positions = None if published else nn.Parameter(0.5 * torch.randn(1, places, width))
        self.input = nn.Identity() if published else nn.Linear(channels, width)
        self.layers = _layers(width, config.depth, config.heads, config.mlp_width, norm_first=not published)
        self.output = nn.Linear(width, size)

    def forward(self, features: Tensor) -> Tensor:
        memory = self.input(features.flatten(1, 2))
        memory = memory if self.positions is None else memory + self.positions
        return self.output(self.layers(self.queries.expand(len(memory), -1, -1), memory))


class Glance(nn.Module):
    """Embedded tokens [M, P, width] to one vector per place [M, places, width]: one attention and one MLP.

    The queries are the same for every frame, so that they are learned as they are instead of being projected.
    """

    def __init__(self, config: PixelDecoderConfig, places: int) -> None:
        super().__init__()
        width = config.width
        self.queries = nn.Parameter(torch.randn(1, config.heads, places, width // config.heads))
        self.places = nn.Parameter(torch.randn(1, places, width))
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, config.mlp_width), nn.GELU(), nn.Linear(config.mlp_width, width)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        keys, values = self.key_value(tokens).unflatten(-1, (2, self.queries.shape[1], -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(self.queries.expand(len(tokens), -1, -1, -1), keys, values)
        x = self.places + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class PixelDecoder(nn.Module):
    """Codes [M, P, D] to images [M, 3, S, S], not yet clamped to 0..1.

    A first glance draws a thumbnail of half the side, which is cheap and is what a verifier looks at; more layers and
    convolutions refine it.
    """

    patch = 4  # side of a square of the thumbnail

    def __init__(self, config: PixelDecoderConfig, *, tokens: int, size: int) -> None:
        super().__init__()
        if config.image_size % (2 * self.patch):
            raise ShapeError(f"the decoder draws images whose side is a multiple of 8, got {config.image_size}")
        self.config = config
        self.side = config.image_size // (2 * self.patch)
        quarter, half = config.channels
        self.input = nn.Linear(size, config.width)
        self.places = nn.Parameter(torch.randn(1, tokens, config.width))
        self.glance = Glance(config, self.side**2)
        self.squares = nn.Linear(config.width, 3 * self.patch**2)
        self.layers = _layers(config.width, config.depth, config.heads, config.mlp_width)
        self.to_quarter = nn.Conv2d(config.width, 4 * quarter, 3, 1, 1)
        self.to_half = nn.Conv2d(quarter, 4 * half, 3, 1, 1)
        self.to_full = nn.Conv2d(half + 3, 12, 3, 1, 1)

    def forward(self, codes: Tensor) -> Tensor:
        return self.draw(codes)[1]

    def draw(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Codes [M, P, D] to thumbnails [M, 3, S/2, S/2] and images [M, 3, S, S]."""
        tokens = self.embed(codes)
        glance = self.glance(tokens)
        small = self._arrange(self.squares(glance))
        x = self.layers(glance, tokens).transpose(1, 2).unflatten(2, (self.side, self.side))
        x = x.contiguous(memory_format=torch.channels_last)
        x = F.gelu(F.pixel_shuffle(self.to_quarter(x), 2))
        x = F.gelu(F.pixel_shuffle(self.to_half(x), 2))
        detail = F.pixel_shuffle(self.to_full(torch.cat([x, small], 1)), 2)
        return small, F.interpolate(small, scale_factor=2, mode="bilinear") + detail

    def embed(self, codes: Tensor) -> Tensor:
        return self.input(codes) + self.places

    def thumbnail_squares(self, codes: Tensor) -> Tensor:
        """Codes [M, P, D] to the thumbnail's squares of 4 × 4 pixels, row by row: [M, (S/8)², 48]."""
        return self.squares(self.glance(self.embed(codes)))

    def _arrange(self, squares: Tensor) -> Tensor:
        """Squares [M, (S/8)², 48] to thumbnails [M, 3, S/2, S/2]."""
        return F.pixel_shuffle(squares.transpose(1, 2).unflatten(2, (self.side, self.side)), self.patch) + 0.5


class MaskedDecoder(nn.Module):
    """Codes [M, P, D] to the codes of a frozen VQGAN, by unmasking, and these to images [M, 3, S, S]."""

    def __init__(self, config: MaskedDecoderConfig, codec: ImageCodec | VQGAN, *, tokens: int, size: int) -> None:
        super().__init__()
        self.config = config
        self.codec = codec
        self.places = codec.grid**2
        self._build(tokens, size)

    def _build(self, tokens: int, size: int) -> None:
        config, codec, width = self.config, self.codec, self.config.width
        self.input = nn.Linear(size, width)
        self.unknown = nn.Parameter(torch.randn(1, tokens, width))  # in place of tokens that are not shown
        self.embedding = nn.Embedding(codec.size + 1, width)  # the last one stands for hidden
        self.positions = nn.Parameter(0.02 * torch.randn(1, tokens + self.places, width))
        layer = nn.TransformerEncoderLayer(
            width, config.heads, config.mlp_width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, config.depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, codec.size)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def condition(self, codes: Tensor) -> Tensor:
        """Codes [M, P, D] to embedded tokens [M, P, width]."""
        return self.input(codes)

    def nothing(self, codes: Tensor) -> Tensor:
        """What stands in place of them where they are not shown, [M, P, width]."""
        return self.unknown.expand(len(codes), -1, -1)

    def logits(self, condition: Tensor, codes: Tensor, hidden: Tensor) -> Tensor:
        """Embedded tokens [M, P, width] and VQGAN codes [M, G·G], some hidden, to logits [M, G·G, code book]."""
        shown = self.embedding(codes.masked_fill(hidden, self.codec.size))
        features = self.layers(torch.cat([condition, shown], 1) + self.positions)
        return self.head(features[:, condition.shape[1] :])

    def forward(self, codes: Tensor, *, seed: int = 0) -> Tensor:
        """Images, the same for the same seed."""
        known, unknown = self.condition(codes), self.nothing(codes)
        generator = torch.Generator().manual_seed(seed)

        def predict(tokens: Tensor, hidden: Tensor) -> Tensor:
            said = self.logits(known, tokens[..., 0], hidden)
            if self.config.guidance == 1:
                return said
            return torch.lerp(self.logits(unknown, tokens[..., 0], hidden), said, self.config.guidance)

        found = unmask(
            predict,
            (len(codes), self.places),
            (self.codec.size,),
            self.config.unmasking,
            noise=lambda: gumbel((self.places, self.codec.size + 1), generator),
            device=codes.device,
        )
        return self.codec.decode(found[..., 0])

    def loss(self, codes: Tensor, pixels: Tensor) -> Tensor:
        """Cross-entropy of hidden VQGAN codes, given the tokens and the other codes."""
        target = self.codec.encode(pixels)
        hidden = random_mask(len(target), self.places).to(target.device)
        forgotten = (torch.rand(len(codes), 1, 1) < self.config.forget).to(codes.device)
        logits = self.logits(torch.where(forgotten, self.nothing(codes), self.condition(codes)), target, hidden)
        return F.cross_entropy(logits[hidden].float(), target[hidden])


class JointDecoder(MaskedDecoder):
    """The same with the network of CompACT's authors; tokens that are not shown are zeros."""

    def _build(self, tokens: int, size: int) -> None:
        config, width = self.config, self.config.width
        self.input = nn.Linear(size, width)
        self.token_positions = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, self.places, width))
        self.embedding = nn.Embedding(self.codec.size + 1, width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.joint = JointTransformer(width, config.depth, config.heads, config.mlp_width, tokens=tokens)

    def condition(self, codes: Tensor) -> Tensor:
        return self.input(codes) + self.token_positions

    def nothing(self, codes: Tensor) -> Tensor:
        return self.condition(torch.zeros_like(codes))

    def logits(self, condition: Tensor, codes: Tensor, hidden: Tensor) -> Tensor:
        shown = self.embedding(codes.masked_fill(hidden, self.codec.size)) + self.positions
        return F.linear(self.joint(shown, condition), self.embedding.weight[:-1])


class CompactTokenizer(StoredNetwork):
    """`encode` frames to latents [..., P, D], `decode` them to images, `features` of them for a verifier.

    Encoder and codec are loaded by the names in the configuration unless they are passed or learned.
    """

    kind: ClassVar[str] = "compact"
    config_type: ClassVar[type] = CompactConfig

    def __init__(
        self, config: CompactConfig, *, encoder: PatchEncoder | None = None, codec: ImageCodec | None = None
    ) -> None:
        super().__init__()
        tokens, size = config.qformer.queries, len(config.levels)
        self.encoder: ConvFeatures | PatchEncoder
        if isinstance(config.encoder, ConvFeaturesConfig):
            self.encoder = ConvFeatures(config.encoder)
        else:
            self.encoder = encoder or load_encoder(config.encoder)
            self.encoder.check(config.encoder)
            config = replace(config, encoder=replace(self.encoder.config, digest=self.encoder.digest))
        height, width = self.encoder.grid
        self.qformer = QFormer(config.qformer, places=height * width, channels=self.encoder.channels, size=size)
        self.quantiser = FSQ(config.levels, centred=config.centred)
        self.decoder: PixelDecoder | MaskedDecoder
        if isinstance(config.decoder, PixelDecoderConfig):
            self.decoder = PixelDecoder(config.decoder, tokens=tokens, size=size)
        else:
            masked, inside = config.decoder, None
            if isinstance(masked.codec, VQGANConfig):
                inside = VQGAN(masked.codec)
            else:
                codec = codec or load_codec(masked.codec)
                codec.check(masked.codec)
                masked = replace(masked, codec=replace(codec.config, digest=codec.digest))
            config = replace(config, decoder=masked)
            made = JointDecoder if masked.joint else MaskedDecoder
            self.decoder = made(masked, inside or cast(ImageCodec, codec), tokens=tokens, size=size)
        self.config = config

    @property
    def tokens(self) -> int:
        """P."""
        return self.config.qformer.queries

    @property
    def fingerprint(self) -> str:
        """Changes with anything that changes what `encode` gives."""
        learned = {name: value for name, value in self.state_dict().items() if not name.startswith("decoder.")}
        frozen = "" if isinstance(self.encoder, ConvFeatures) else repr(replace(self.encoder.config, source=None))
        told = f"{digest(learned)} {self.config.levels} {frozen}{' centred' if self.config.centred else ''}"
        return hashlib.sha256(told.encode()).hexdigest()[:12]

    def quantise(self, pixels: Tensor) -> Tensor:
        """uint8 pixels [M, S, S, 3] to codes [M, P, D] that gradients pass through."""
        check_pixels("the tokenizer", pixels, self.config.image_size)
        return self.quantiser(self.qformer(self.encoder(pixels)))

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """uint8 pixels [..., S, S, 3] to latents [..., P, D]."""
        flat = pixels.reshape(-1, *pixels.shape[-3:])
        codes = torch.cat([self.quantise(part) for part in flat.split(_CPU_IMAGES)])
        return codes.unflatten(0, pixels.shape[:-3])

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Latents [..., P, D] to images [..., S, S, 3] with values in 0..1."""
        return self._map(lambda codes: self.decoder(codes).clamp(0, 1).permute(0, 2, 3, 1), latents)

    @torch.no_grad()
    def features(self, latents: Tensor) -> Tensor:
        """Latents [..., P, D] to what a verifier looks at [..., P', D'].

        With the pixel decoder: the thumbnail's squares in rows, one token of 4 × 4 × 3 numbers each, as drawn.
        With the masked decoder, which is too slow to ask for every imagined frame: the latents themselves.
        """
        decoder = self.decoder
        if isinstance(decoder, MaskedDecoder):
            return latents
        return self._map(decoder.thumbnail_squares, latents)

    def _map(self, draw: Callable[[Tensor], Tensor], latents: Tensor) -> Tensor:
        flat = latents.reshape(-1, *latents.shape[-2:])
        return torch.cat([draw(part) for part in flat.split(_CPU_IMAGES)]).unflatten(0, latents.shape[:-2])


@dataclass(frozen=True)
class CompactLossConfig:
    perceptual: float = 0.0  # weight of the perceptual distance, if one is given
    perceptual_frames: int = 8  # of a batch, whose perceptual distance is taken: it is the costliest part
    thumbnail: float = 0.5  # weight of the thumbnail's squared error


class CompactLoss(nn.Module):
    """What a tokenizer is trained to minimise: squared error and perceptual distance, or the masked decoder's loss.

    `perceptual` takes two batches of images [M, 3, S, S] in 0..1 and gives distances [M].
    """

    def __init__(self, config: CompactLossConfig, perceptual: Perceptual | None = None) -> None:
        super().__init__()
        if config.perceptual and perceptual is None:
            raise ShapeError(f"a perceptual weight of {config.perceptual} needs a perceptual distance, got none")
        self.config = config
        self.perceptual = (perceptual,)  # in a tuple, because a distance may be a network whose weights are not ours

    def forward(self, tokenizer: CompactTokenizer, pixels: Tensor) -> dict[str, Tensor]:
        """Frames uint8 [M, S, S, 3]. The entry "loss" is what to minimise."""
        codes, decoder, config = tokenizer.quantise(pixels), tokenizer.decoder, self.config
        if isinstance(decoder, MaskedDecoder):
            return {"loss": decoder.loss(codes, pixels)}
        small, drawn = decoder.draw(codes)
        images = to_image(pixels)
        error = F.mse_loss(drawn, images)
        coarse = F.mse_loss(small, F.avg_pool2d(images, 2))
        losses = {"loss": error + config.thumbnail * coarse, "error": error.detach()}
        (perceptual,) = self.perceptual
        if perceptual is None or not config.perceptual:
            return losses
        few = slice(config.perceptual_frames)
        distance = perceptual(drawn[few].clamp(0, 1), images[few]).mean()
        return losses | {"loss": losses["loss"] + config.perceptual * distance, "perceptual": distance.detach()}
