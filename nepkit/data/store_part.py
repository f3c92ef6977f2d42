"""Some frames of a store as a data set of their own."""

from __future__ import annotations

import numpy as np

from .known import Labels
from .prepared import Prepared, Surroundings
from .store import Store
from .structures import Structures


class StorePart:
    """``frames`` (n,) of a store, which ascend, numbered 0 to n - 1 and read as a store is."""

    def __init__(self, store: Store, frames: np.ndarray):
        self.store, self.frames = store, frames
        self.path, self.n_types, self.counts = store.path, store.n_types, store.counts[frames]
        # Those of the whole store: more may have coefficients than have data.
        self.pair_types = store.pair_types

    def __len__(self) -> int:
        return len(self.frames)

    def _there(self, frames: np.ndarray | None) -> np.ndarray:
        return self.frames if frames is None else self.frames[frames]

    @property
    def labels(self) -> Labels:
        """The labels of all frames."""
        return self.store.labels.take(self.frames)

    @property
    def surroundings(self) -> Surroundings:
        """What the pairs of all frames tell of them."""
        return self.store.surroundings.take(self.frames)

    def bytes(self, frames: np.ndarray | None = None) -> int:
        """See Store."""
        return self.store.bytes(self._there(frames))

    def structures(self, frames: np.ndarray | None = None, **where) -> Structures:
        """See Store."""
        return self.store.structures(self._there(frames), **where)

    def prepared(self, frames: np.ndarray | None = None, **where) -> Prepared:
        """See Store."""
        return self.store.prepared(self._there(frames), **where)
