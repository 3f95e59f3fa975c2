"""The HDF5 libraries and the names of the column layout, in one place.

Layout (that of stable-worldmodel): one dataset per column with one row per step of every episode, back to back, and
`ep_len`, `ep_offset` with one row per episode.
"""

from __future__ import annotations

try:
    import h5py
    import hdf5plugin  # importing it registers the compression filters that published files use
except ImportError as error:
    raise ImportError("acid.data needs h5py and hdf5plugin: pip install 'acid-planning[data]'") from error

LENGTHS = "ep_len"
OFFSETS = "ep_offset"
EPISODE_INDEX = "episode_idx"
STEP_INDEX = "step_idx"
INDEX_COLUMNS = (EPISODE_INDEX, STEP_INDEX)

# Published files disagree on this one name; we always speak of the first.
ALIASES = {EPISODE_INDEX: "ep_idx"}

__all__ = ["ALIASES", "EPISODE_INDEX", "INDEX_COLUMNS", "LENGTHS", "OFFSETS", "STEP_INDEX", "h5py", "hdf5plugin"]
