"""Episodes on disk, and the windows that training draws from them."""

from acid.data.concatenate import concatenate
from acid.data.episodes import Episodes
from acid.data.latents import cached_latents, encode_episodes
from acid.data.split import Split, fit_scaler, split
from acid.data.windows import Batch, Windows, batches
from acid.data.writer import EpisodeWriter

__all__ = [
    "Batch",
    "EpisodeWriter",
    "Episodes",
    "Split",
    "Windows",
    "batches",
    "cached_latents",
    "concatenate",
    "encode_episodes",
    "fit_scaler",
    "split",
]
