"""Data for the CPU kernels, and how their work is divided."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...config import ModelSettings
from ...data.batch import Batch, Selection
from ...data.structures import Structures
from ..harmonics import component_count, degrees, three_body_weights
from ..monomials import MONOMIALS
from .forward import densities
from .jit import jit
from .threads import arrays, even_ranges, run, thread_count


class PairData(NamedTuple):
    """Constants of a data set (or of one batch), as numpy arrays that share torch's memory.

    Letters as in Batch, over all frames.
    """

    row_start: np.ndarray  # (A + 1,) rows of an atom
    group: np.ndarray  # (R,) of the row's pair type, in the model
    radial_start: np.ndarray  # (R + 1,) directed pairs of a row
    angular_start: np.ndarray  # (R + 1,)
    radial_code: np.ndarray  # (2 H,) half pair h of i -> j, ~h for j -> i
    angular_code: np.ndarray  # (2 Q,)
    center: np.ndarray  # (H,) atom
    neighbor: np.ndarray  # (H,) atom
    first: np.ndarray  # (H,) directed pair i -> j
    second: np.ndarray  # (H,) directed pair j -> i
    angular_half: np.ndarray  # (Q,) half pair of an angular pair
    vectors: np.ndarray  # (H, 3) Å
    unit: np.ndarray  # (H, 3)
    radial_slope: np.ndarray  # (H, K_R)
    angular_basis: np.ndarray  # (Q, 2 K_A)
    harmonics: np.ndarray  # (Q, 4 L)
    radial_density: np.ndarray  # (R, K_R)
    angular_density: np.ndarray  # (R, K_A L)
    parity: np.ndarray  # (L,)
    square_weight: np.ndarray  # (L,) of each squared component in its q_l
    cubic: np.ndarray  # (terms, 4) a, b, c, place among the higher invariants
    cubic_weight: np.ndarray  # (terms,)
    quartic: np.ndarray  # (1,) place of q1111 among the higher invariants, or -1


class Place(NamedTuple):
    """Which atoms of the data a batch holds, and how its indices differ from the data's."""

    atom: np.ndarray  # (N,) atom of the data
    slot: np.ndarray  # (N,) frame of the batch
    atom_shift: np.ndarray  # (B,) atom of the batch less atom of the data
    pair_shift: np.ndarray  # (B,) the same for directed pairs
    row_shift: np.ndarray  # (B,) the same for rows
    pair_start: np.ndarray  # (B + 1,) directed pairs of a frame of the batch
    row_start: np.ndarray  # (B + 1,) rows of a frame of the batch


def pair_data(
    batch: Batch, tables: dict[str, Tensor], group_of_pair_type: Tensor, settings: ModelSettings
) -> PairData:
    """The kernels' view of ``batch`` with its ``pair_tables``."""

    def coded(order: Tensor) -> Tensor:
        return torch.where(order % 2 == 0, order // 2, ~(order // 2))

    place = torch.argsort(batch.radial_order).to(torch.int32)
    like = tables["unit"]
    n_rows, n_angular = len(batch.row_center), settings.basis_size[1] + 1
    found = {
        "row_start": batch.row_start,
        "group": group_of_pair_type.index_select(0, batch.row_pair_type),
        "radial_start": batch.radial_start, "angular_start": batch.angular_start,
        "radial_code": coded(batch.radial_order), "angular_code": coded(batch.angular_order),
        "center": batch.center, "neighbor": batch.neighbor,
        "first": place[0::2], "second": place[1::2], "angular_half": batch.angular,
        "radial_density": like.new_empty(n_rows, settings.basis_size[0] + 1),
        "angular_density": like.new_empty(n_rows, n_angular * tables["harmonics"].shape[2]),
        **invariant_arrays(settings, like),
    }  # fmt: skip
    for name in ("vectors", "unit", "radial_slope", "angular_basis", "harmonics"):
        found[name] = tables[name].flatten(1)
    data = PairData(**dict(zip(found, arrays(values.contiguous() for values in found.values()))))
    where = (shape_of(settings), data)
    run(
        densities,
        even_ranges(n_rows),
        *where,
        tables["radial"],
        data.radial_density,
        data.angular_density,
    )
    return data


def invariant_arrays(settings: ModelSettings, like: Tensor) -> dict[str, Tensor]:
    """The fields of PairData that say what the invariants are."""
    higher = settings.invariants
    terms = [
        (*components, place, weight)
        for place, name in enumerate(higher)
        for components, weight in MONOMIALS.get(name, ())
    ]
    of_component = degrees(settings.l_max)
    return {
        "parity": like.new_tensor([(-1.0) ** l for l in of_component]),
        "square_weight": like.new_tensor(three_body_weights(settings.l_max)),
        "cubic": torch.tensor([term[:4] for term in terms], dtype=torch.int64).view(-1, 4),
        "cubic_weight": like.new_tensor([term[4] for term in terms]),
        "quartic": torch.tensor([higher.index("q1111") if "q1111" in higher else -1]),
    }


class Shape(NamedTuple):
    """Sizes of a model as lengths of tuples, so that the kernels are compiled for them."""

    n_radial: tuple[int, ...]
    k_radial: tuple[int, ...]
    n_angular: tuple[int, ...]
    k_angular: tuple[int, ...]
    l_max: tuple[int, ...]
    components: tuple[int, ...]  # L


def shape_of(settings: ModelSettings) -> Shape:
    """The sizes of a model."""
    radial, angular = zip(settings.n_max, settings.basis_size)
    lengths = [*(size + 1 for size in (*radial, *angular)), settings.l_max]
    return Shape(*((0,) * length for length in (*lengths, component_count(settings.l_max))))


def selected(structures: Structures, frames: Tensor) -> tuple[Selection, Place]:
    """``frames`` (B,) int64 in this order, without their pairs, and their place in the data."""
    starts, shifts = moved(structures.offsets.numpy(), frames.numpy())
    index, frame = members(starts[0], shifts[0])
    atoms, frame_of = torch.from_numpy(index), torch.from_numpy(frame)
    selection = Selection(
        frames=frames, atom_start=torch.from_numpy(starts[0].astype(np.int32)), atom_index=atoms,
        atom_frame=frame_of, types=structures.types.index_select(0, atoms),
        tables=structures.tables_of({"frames": frames, "atoms": atoms}),
    )  # fmt: skip
    pairs = 2 * shifts[2], shifts[1], 2 * starts[2]
    return selection, Place(index, frame, shifts[0], *pairs, starts[1])


@jit
def moved(offsets, frames):
    """Where frames' members start in the batch (kinds, B + 1), and that less where in the data.

    ``offsets`` (kinds, F + 2): where they start in the data.
    """
    n_kinds, n_frames = len(offsets), len(frames)
    starts = np.zeros((n_kinds, n_frames + 1), np.int64)
    shifts = np.empty((n_kinds, n_frames), np.int64)
    for kind in range(n_kinds):
        first = offsets[kind]
        for slot, frame in enumerate(frames):
            shifts[kind, slot] = starts[kind, slot] - first[frame]
            starts[kind, slot + 1] = starts[kind, slot] + first[frame + 1] - first[frame]
    return starts, shifts


@jit
def members(start, shift):
    """Place in the data (N,) and frame of the batch (N,) int32 of its atoms."""
    index, frame = np.empty(start[-1], np.int64), np.empty(start[-1], np.int32)
    for slot in range(len(shift)):
        for i in range(start[slot], start[slot + 1]):
            index[i], frame[i] = i - shift[slot], slot
    return index, frame


def whole(batch: Batch) -> Place:
    """The place of a batch in data that are the batch itself."""
    none, half_start = np.zeros(len(batch), dtype=np.int64), batch.half_start.long().numpy()
    row_start = batch.row_start.numpy()[batch.atom_start.numpy()].astype(np.int64)
    return Place(
        np.arange(len(batch.types)), batch.atom_frame.numpy(), none, none, none,
        2 * half_start, row_start,
    )  # fmt: skip


def ranges(data: PairData, batch: Place) -> np.ndarray:
    """Ends of ranges of the batch's atoms with about as much work each, one a thread."""
    n_threads, n_atoms = thread_count(), len(batch.atom)
    if n_threads == 1 or n_atoms < 2 * n_threads:
        return np.array([0, n_atoms])
    work = work_until(batch.atom, data.row_start, data.radial_start, data.angular_start)
    cuts = np.searchsorted(work, work[-1] * np.arange(1, n_threads) / n_threads)
    return np.array([0, *cuts, n_atoms])


@jit
def work_until(atoms, row_start, radial_start, angular_start):
    """The work of a step up to each atom (N,), in units of a radial pair's."""
    result, total = np.empty(len(atoms), np.int64), 0
    for i, atom in enumerate(atoms):
        first, last = row_start[atom], row_start[atom + 1]
        # About what a network, a row and an angular pair cost.
        total += 100 + 25 * (last - first) + 4 * (angular_start[last] - angular_start[first])
        total += radial_start[last] - radial_start[first]
        result[i] = total
    return result
