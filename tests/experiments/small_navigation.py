"""A tokenizer and a world model of navigation that are as small as they can be."""

from acid.loop import LoopConfig
from acid.models.compact import CompactConfig, ConvFeaturesConfig, PixelDecoderConfig, QFormerConfig
from acid.models.nwm import CDiTConfig, NWMConfig
from acid.nn.unmasking import Unmasking

SIDE = 32  # px: LPIPS needs as many
TOKENS = CompactConfig(
    ConvFeaturesConfig(SIDE, (8, 8)),
    QFormerConfig(queries=4, width=16, depth=1, heads=2, mlp_width=16),
    PixelDecoderConfig(SIDE, 16, 1, 2, 16, (4, 4)),
    levels=(5, 4, 3),
)
WORLD_MODEL = NWMConfig(
    3, TOKENS, CDiTConfig(16, 1, 2, 16), context=4, factorised=True, waves=4, unmasking=Unmasking(2)
)
LOOP = LoopConfig(steps=20, batch_size=8, learning_rate=3e-3)
