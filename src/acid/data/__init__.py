"""Episodes on disk, and what training draws from them."""

from acid.data.concatenate import concatenate
from acid.data.episodes import Episodes
from acid.data.formats import FORMATS, import_episodes, import_once
from acid.data.latents import cached_latents, encode_episodes, read_observation
from acid.data.partition import Partition, fingerprint, partition
from acid.data.split import Split, fit_scaler, split
from acid.data.windows import Shuffle, Windows, read_ahead
from acid.data.writer import EpisodeWriter, Source

__all__ = [
    "FORMATS",
    "EpisodeWriter",
    "Episodes",
    "Partition",
    "Shuffle",
    "Source",
    "Split",
    "Windows",
    "cached_latents",
    "concatenate",
    "encode_episodes",
    "fingerprint",
    "fit_scaler",
    "import_episodes",
    "import_once",
    "partition",
    "read_ahead",
    "read_observation",
    "split",
]
