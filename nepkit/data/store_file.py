"""Writing the HDF5 file of a store, piece by piece."""

from __future__ import annotations

import io
import json
import os

import h5py
import numpy as np

from .block import Block
from .known import Labels
from .store import RECORDS

# Bytes of a chunk of the file, the least that is read: of pairs and rows, of atoms and frames.
LARGE, SMALL = 1 << 18, 1 << 15


class StoreWriter:
    """Appends pieces of frames to a new store at ``path``; a context manager.

    Raises ``OSError`` when the disk is full.
    """

    def __init__(self, path: str | os.PathLike, key: dict):
        self.key = key
        self.raw = _Unfailing(path)
        self.sources: dict[str, int] = {}
        self.pair_types = np.empty(0, np.int64)

    def __enter__(self) -> StoreWriter:
        self.file = h5py.File(self.raw, "w")
        return self

    def add(self, labels: Labels, block: Block):
        """Append frames."""
        numbers = [self.sources.setdefault(name, len(self.sources)) for name in labels.sources]
        source = np.array(numbers, np.int32)[labels.source]
        for name, (kind, axis) in RECORDS.items():
            values = getattr(block, name, None)
            values = getattr(labels, name) if values is None else values
            self._append(name, source if name == "source" else values, axis, kind)
        self.pair_types = np.union1d(self.pair_types, block.row_index[1])
        self.raw.check()

    def _append(self, name: str, values: np.ndarray, axis: int, kind: int):
        if name not in self.file:
            shape = [0 if k == axis else n for k, n in enumerate(values.shape)]
            limit = [None if k == axis else n for k, n in enumerate(values.shape)]
            width = values.itemsize * int(np.prod(shape[:axis] + shape[axis + 1 :], dtype=int))
            size = SMALL if kind in (0, 4) else LARGE
            chunk = [max(size // width, 1) if k == axis else n for k, n in enumerate(values.shape)]
            self.file.create_dataset(
                name, shape, values.dtype, maxshape=tuple(limit), chunks=tuple(chunk),
                fletcher32=True,
            )  # fmt: skip
        data = self.file[name]
        before = data.shape[axis]
        data.resize(before + values.shape[axis], axis)
        data[(slice(None),) * axis + (slice(before, None),)] = values

    def __exit__(self, kind, *_):
        if kind is None:
            self.file["sources"] = np.array(list(self.sources), h5py.string_dtype())
            self.file["pair_types"] = self.pair_types.astype(np.int64)
            self.file.attrs["nepkit"] = json.dumps(self.key)
        self.file.close()
        self.raw.close()
        if kind is None:
            self.raw.check()


class _Unfailing(io.RawIOBase):
    """A file whose writes seem to succeed when the disk is full.

    HDF5 cannot close a file that it failed to write, and crashes at the end of the process. So it
    is told nothing of a failure, which ``check`` raises.
    """

    def __init__(self, path: str | os.PathLike):
        self.raw = open(path, "r+b", buffering=0)
        self.failure: OSError | None = None

    def check(self):
        """Raise what a write has failed with."""
        if self.failure is not None:
            raise self.failure

    def write(self, data) -> int:
        data, done = memoryview(data).cast("B"), 0
        try:
            while done < len(data):
                done += self.raw.write(data[done:])
        except OSError as error:
            self.failure = self.failure or error
        return len(data)

    def truncate(self, size=None):
        try:
            return self.raw.truncate(size)
        except OSError as error:
            self.failure = self.failure or error

    def readinto(self, data) -> int:
        count = self.raw.readinto(data)
        if self.failure is not None:  # anything will do
            return len(data)
        return count

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.raw.seek(offset, whence)

    def tell(self) -> int:
        return self.raw.tell()

    def close(self):
        self.raw.close()
