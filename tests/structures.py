"""Structures, models and labels for the tests of geometry, operations and model."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nepkit.config import ModelSettings, Zbl
from nepkit.data.frame import Frame
from nepkit.data.neighbors import pair_cutoffs
from nepkit.data.prepared import Prepared, prepare
from nepkit.model.conversion import model_from_file
from nepkit.model.evaluate import Prediction, predict
from nepkit.model.evaluator import Evaluator, keep_constants
from nepkit.model.nep import Evaluation, Nep
from nepkit.model.nep_txt import NepFile, coefficient_shapes, network_shapes
from nepkit.ops.policy import fused_on, reference_path
from nepkit.units import ATOMIC_NUMBERS, ELEMENTS

SHARED = Path(__file__).resolve().parents[2] / "shared"
TWO = ("Te", "Pb")
EIGHTY_NINE = ELEMENTS[:89]
ROWS, COLUMNS = [0, 1, 2, 0, 1, 2], [0, 1, 2, 1, 2, 0]  # xx yy zz xy yz zx


def shared(name: str) -> Path:
    """A file of the shared data folder; skips the test where the folder is not there."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"needs the project's shared data: {name}")
    return path


def model_settings(elements=TWO, radial=4.5, angular=3.4, **changes) -> ModelSettings:
    """A small model; a cutoff is one number or one an element."""
    radial, angular = (
        cutoff if isinstance(cutoff, tuple) else (cutoff,) * len(elements)
        for cutoff in (radial, angular)
    )
    small = {"n_max": (2, 1), "basis_size": (4, 3), "neuron": (5,)} | changes
    return ModelSettings(tuple(elements), radial, angular, **small)


def make_frame(elements, positions, cell=None, pbc=True, **labels) -> Frame:
    """A frame of element symbols; without ``cell`` a molecule."""
    if cell is None:
        cell, pbc = np.zeros((3, 3)), False
    return Frame(
        np.array([ATOMIC_NUMBERS[element] for element in elements], dtype=np.int16),
        np.array(positions, dtype=np.float64).reshape(-1, 3),
        np.array(cell, dtype=np.float64),
        np.broadcast_to(np.array(pbc, dtype=bool), 3).copy(),
        **labels,
    )


def odd_frames(elements=TWO, seed: int = 0) -> dict[str, Frame]:
    """One frame of each odd kind, with elements chosen at random."""
    generator = np.random.default_rng(seed)

    def chosen(count):
        return [elements[k] for k in generator.integers(0, len(elements), count)]

    def random_frame(count, cell, pbc=True, shift=0.0, spread=1.0):
        cell = np.array(cell, dtype=float)
        positions = _apart(generator, count, cell, spread) + shift
        return make_frame(chosen(count), positions, cell * np.broadcast_to(pbc, 3)[:, None], pbc)

    skewed = [[5.1, 0.2, 0.0], [2.4, 4.7, 0.3], [-1.9, 2.1, 4.9]]
    return {
        "bulk": random_frame(8, np.diag([5.3, 5.7, 6.1])),
        "triclinic": random_frame(5, skewed),
        "left-handed": random_frame(5, skewed[::-1]),
        "thin": random_frame(3, np.diag([1.9, 6.3, 7.1])),
        "two atoms": random_frame(2, [[2.3, 0.1, 0.0], [1.1, 2.5, 0.2], [0.3, -0.4, 2.9]]),
        "one atom": random_frame(1, [[0.0, 1.9, 1.8], [1.95, 0.0, 1.9], [1.85, 1.9, 0.0]]),
        "outside": random_frame(5, skewed, shift=[[23.0, -17.0, 9.0]], spread=3.0),
        "slab": random_frame(6, np.diag([4.9, 5.2, 6.0]), (True, True, False)),
        "slab along a": random_frame(6, np.diag([4.9, 5.2, 6.0]), (False, True, True)),
        "wire": random_frame(4, [[5.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.9, 1.1, 3.7]], (False, False, True)),
        "molecule": random_frame(7, np.diag([5.0, 5.0, 5.0]), False),
        "dimer": make_frame(chosen(2), [[0.0, 0.0, 0.0], [2.3, 2.3, 2.2]]),
        "isolated": make_frame(chosen(1), [[1.0, 2.0, 3.0]]),
        "far apart": make_frame(chosen(2), [[0.1, 0.0, 0.0], [9.0, 9.0, 9.0]], 20.0 * np.eye(3)),
    }  # fmt: skip


def _apart(generator, count, cell, spread, least=1.5):
    """Positions in the cell (``spread`` times as far out), no two closer than ``least`` Å."""
    images = np.stack(np.meshgrid(*[np.arange(-1, 2)] * 3), -1).reshape(-1, 3) @ cell
    inverse = np.linalg.inv(cell)
    while True:
        positions = spread * generator.random((count, 3)) @ cell
        apart = (positions[:, None] - positions) @ inverse
        apart = (apart - np.round(apart)) @ cell
        distances = np.linalg.norm(apart[:, :, None] + images, axis=3)
        if distances[distances > 1e-9].min(initial=least) >= least or count == 1:
            return positions
        least *= 0.99


# Lists of frames by what is odd about them: elements and names of odd_frames.
ODD_SHAPES = {
    "all kinds": (TWO, tuple(odd_frames())),
    "no neighbours": (TWO, ("isolated", "far apart", "isolated")),
    "isolated atom": (TWO, ("isolated",)),
    "one atom": (TWO, ("one atom",)),
    "one type": (("Si",), ("bulk", "isolated", "thin")),
    "89 types": (EIGHTY_NINE, ("bulk", "molecule", "two atoms", "isolated", "slab")),
    "many images": (TWO, ("two atoms",)),
    "no angular pairs": (TWO, ("dimer", "isolated", "dimer")),
}


def odd_shape(name: str, seed: int = 0) -> tuple[tuple[str, ...], list[Frame]]:
    """Elements and frames of one of ODD_SHAPES."""
    elements, kinds = ODD_SHAPES[name]
    frames = odd_frames(elements, seed)
    return elements, [frames[kind] for kind in kinds]


def make_ready(frames, settings, dtype=torch.float64) -> Prepared:
    return prepare(list(frames), settings, device="cpu", dtype=dtype)


def all_in_one(prepared: Prepared):
    """The batch of all frames."""
    return prepared.structures.batch(torch.arange(len(prepared)))


def random_file(settings: ModelSettings, seed: int = 0) -> NepFile:
    """A potential with random numbers of ordinary size."""
    generator = np.random.default_rng(seed)
    n_types = len(settings.elements)
    layers = []
    for shape in network_shapes(settings):
        width = shape[-1] if len(shape) == 2 else 1
        layers.append(generator.normal(size=(n_types, *shape)) / np.sqrt(width))
    coefficients = [
        0.5 * generator.normal(size=(n_types, n_types, *shape))
        for shape in coefficient_shapes(settings)
    ]
    q_scaler = generator.uniform(0.3, 1.0, settings.descriptor_length)
    return NepFile(
        settings, (300, 200), tuple(layers[:-1:2]), tuple(layers[1:-1:2]), layers[-1],
        float(generator.normal()), *coefficients, q_scaler,
    )  # fmt: skip


def random_model(settings: ModelSettings, seed: int = 0, dtype=torch.float64) -> Nep:
    return model_from_file(random_file(settings, seed), device="cpu", dtype=dtype)


PATHS = ("reference", "fused")


@contextmanager
def on_path(path: str):
    """Run the block on one path; skips the test where there are no fused kernels."""
    if path == "reference":
        with reference_path():
            yield
    else:
        if not fused_on(torch.device("cpu")):
            pytest.skip("needs numba for the fused kernels")
        yield


def evaluation_of(model: Nep, prepared: Prepared, path="reference", *, kept=False) -> Evaluation:
    """The evaluation of all frames; ``kept``: with what training keeps of the pairs."""
    with on_path(path):
        if kept:
            keep_constants(prepared.structures, model.settings)
        return Evaluator(model, prepared.structures)(torch.arange(len(prepared)))


def evaluate(model: Nep, frames, path="reference", **options) -> Prediction:
    with on_path(path):
        prepared = make_ready(frames, model.settings, model.flat.dtype)
        return predict(model, prepared, **options)


def largest(values) -> float:
    """The largest magnitude, 0 of nothing."""
    return float(np.abs(np.asarray(values)).max(initial=0.0))


def zbl_forms(elements, seed: int = 0) -> dict[str, Zbl]:
    """The three forms of ZBL for ``elements``."""
    generator = np.random.default_rng(seed)
    n_pairs = len(elements) * (len(elements) + 1) // 2
    rows = generator.uniform(0.1, 1.0, (n_pairs, 10))
    rows[:, 0], rows[:, 1] = (
        generator.uniform(0.8, 1.4, n_pairs),
        generator.uniform(2.2, 3.0, n_pairs),
    )
    return {
        "universal": Zbl(1.4, 2.8),
        "typewise": Zbl(1.4, 2.8, 0.9),
        "flexible": Zbl(0.0, 0.0, flexible=tuple(map(tuple, rows.tolist()))),
    }


def moved(frame: Frame, atom: int, component: int, step: float) -> Frame:
    positions = frame.positions.copy()
    positions[atom, component] += step
    return replace(frame, positions=positions)


def strained(frame: Frame, row: int, column: int, step: float) -> Frame:
    """The frame after r -> r (1 + strain)."""
    deformation = np.eye(3)
    deformation[row, column] += step
    return replace(frame, positions=frame.positions @ deformation, cell=frame.cell @ deformation)


# Five-point differences: df/dx = sum of weight * f(x + place * step) / step.
STENCIL = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}


def differentiated_energy(energies, frame: Frame, step=5e-5) -> tuple[np.ndarray, np.ndarray]:
    """-dE/dx (N, 3) and -dE/dstrain (6,), with ``energies`` of a list of frames.

    Second derivatives jump at a cutoff, so no pair may lie within some 1e-4 Å of one.
    """
    changes = [(moved, atom, k) for atom in range(len(frame)) for k in range(3)]
    changes += [(strained, row, column) for row, column in zip(ROWS, COLUMNS)]
    frames = [
        change(frame, *where, place * step) for change, *where in changes for place in STENCIL
    ]
    values = np.asarray(energies(frames)).reshape(len(changes), len(STENCIL))
    slopes = -(values - values[:, :1]) @ np.array(list(STENCIL.values())) / step
    return slopes[:-6].reshape(-1, 3), slopes[-6:]


def brute_pairs(frame: Frame, types: np.ndarray, per_element) -> tuple[np.ndarray, np.ndarray]:
    """Directed pairs (P, 2) and vectors (P, 3) within the cutoffs, by summing over images."""
    cutoff = pair_cutoffs(per_element)
    lattice = frame.cell[frame.pbc]
    apart = frame.positions[None, :] - frame.positions[:, None]  # r_j - r_i
    counts = []
    if len(lattice):
        inverse = np.linalg.pinv(lattice)  # columns: gradient of the fractional coordinates
        reach = cutoff.max() * np.linalg.norm(inverse, axis=0)
        reach += np.abs(apart @ inverse).max(axis=(0, 1))
        counts = np.ceil(reach).astype(int)
    grid = np.meshgrid(*[np.arange(-n, n + 1) for n in counts], indexing="ij")
    images = np.stack([g.ravel() for g in grid], 1) @ lattice if grid else np.zeros((1, 3))
    vectors = apart[:, :, None, :] + images
    distance = np.linalg.norm(vectors, axis=3)
    itself = np.eye(len(frame), dtype=bool)[:, :, None] & (np.linalg.norm(images, axis=1) < 1e-9)
    found = (distance < cutoff[types[:, None], types][:, :, None]) & ~itself
    i, j, _ = np.nonzero(found)
    return np.stack([i, j], axis=1), vectors[found]
