"""The evaluation of moving atoms on GPUs, and on any device that torch has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..data.batch import VIRIAL_COLUMNS, VIRIAL_ROWS
from ..data.frame import Frame
from ..data.neighbors import pair_cutoffs
from ..data.prepared import type_lookup
from ..model.fused_network import FusedNetwork
from ..model.nep import Nep
from ..model.network import NetworkWeights
from ..model.zbl import repulsion_tables
from ..ops.capture import nothing_collected
from ..ops.harmonics import component_powers, component_table
from ..ops.invariants import descriptors, sum_slopes
from ..ops.listed import ListedPairs, Neighborhood, close_pairs, listed_vectors, pair_kinds
from ..ops.moving import Moving, neighbor_forces, neighbor_sums, radial_pulls
from ..ops.policy import kernels_on
from ..ops.repulsion import Repulsion, repulsions
from ..ops.segment import segment_sum
from .device_lists import DeviceList, Room, joined
from .evaluated import Evaluated
from .skin import refreshed
from .transfers import read, sent

# Atoms between positions and slopes at once; beyond it only slopes are kept, some kB an atom.
ATOMS_AT_ONCE = 1 << 18
# Up to here a graph is worth its memory, its own for as long as it lives: some kB an atom. Even where
# kernels take longer than launching them, the host has its time for other things.
ATOMS_IN_GRAPH = 1 << 18


class DeviceField:
    """A model on moving atoms, one structure or several side by side; see CpuField.

    Lists say who their pairs are between, and nothing of where. Up to ATOMS_IN_GRAPH a captured graph is
    replayed.
    """

    def __init__(self, model: Nep, skin: float):
        self.model, self.settings, self.skin = model, model.settings, skin
        self.device, self.dtype = model.flat.device, model.flat.dtype
        self.lookup = type_lookup(model.settings.elements)
        views, settings = model.views(model.flat), model.settings
        layers = range(len(settings.neuron))
        self.weights = NetworkWeights(
            tuple(views[f"hidden_weight_{k}"] for k in layers),
            tuple(views[f"hidden_bias_{k}"] for k in layers),
            views["output_weight"], views["element_bias"],
        )  # fmt: skip
        height, _ = component_table(settings.l_max)
        radial, angular = (
            self._tensor(pair_cutoffs(cutoff).ravel())
            for cutoff in (settings.radial_cutoff, settings.angular_cutoff)
        )
        self.of_close = angular, views["angular_coefficients"], len(settings.elements)
        self.tables = (
            radial, angular, views["radial_coefficients"], self._tensor(height),
            self._tensor(component_powers(settings.l_max)), len(settings.elements),
        )  # fmt: skip
        self.zbl = None
        if settings.zbl is not None:
            self.zbl = Repulsion(*(self._tensor(t) for t in repulsion_tables(settings)))
        self.lists: list[DeviceList] = []
        self.rebuilds = 0
        self.room, self.trusted = Room(), True
        self.graph = self.outputs = None

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=self.dtype, device=self.device)

    def begin(self, frames: Sequence[Frame]) -> tuple[Tensor, ...] | None:
        """Start on ``frames`` by the lists at hand, for ``begun`` of the call that asks for them.

        Whether they are good for ``frames``, of which nothing need be checked yet but the sizes, is
        found out while the device works.
        """
        sizes = [len(of.reference) for of in self.lists]
        if self.skin == 0.0 or sizes != [len(frame) for frame in frames]:
            return None
        return self._launched(frames)

    def __call__(
        self,
        frames: Sequence[Frame],
        per_atom: bool = False,
        descriptors: bool = False,
        begun: tuple[Tensor, ...] | None = None,
    ) -> Evaluated:
        """Evaluate ``frames``, whose elements the model has; the flags ask for more of atoms."""
        results = self.begin(frames) if begun is None else begun
        if self._update(frames) or results is None:
            results = self._launched(frames)
        packed, atom_virials, q = results
        n_atoms = len(self.types)
        energies, forces, virials = np.split(read(packed), np.cumsum([n_atoms, 3 * n_atoms]))
        return Evaluated(
            energies, forces.reshape(-1, 3),
            virials.reshape(-1, 3, 3)[:, VIRIAL_ROWS, VIRIAL_COLUMNS],
            (q * self.model.q_scaler).cpu().numpy() if descriptors else None,
            atom_virials.double().cpu().numpy().reshape(-1, 3, 3) if per_atom else None,
        )  # fmt: skip

    def _launched(self, frames: Sequence[Frame]) -> tuple[Tensor, ...]:
        """``evaluate`` of frames by the lists at hand; nobody waits for the device."""
        cells = [frame.cell for frame in frames]
        images = [of.images @ cell for of, cell in zip(self.lists, cells)]
        groups = [frame.positions for frame in frames], cells, images
        positions, cells, shifts = sent(groups, self.device)
        if self.wrapped is not None:
            of_atoms = cells.view(-1, 3, 3).index_select(0, self.frame_of_atom)
            positions = positions + (self.wrapped[:, :, None] * of_atoms).sum(1)
        self.room.put("positions", positions)
        self.room.put("shifts", shifts)
        return self.replayed()

    def _update(self, frames: Sequence[Frame]) -> bool:
        """Have the neighbours of ``frames``; whether there were others."""
        self.lists, made = refreshed(self.lists, frames, self._list_of)
        if not made:
            return False
        types = [self.lookup[frame.numbers] for frame in frames]
        self.rebuilds += made
        *both, turned = joined(self.lists)
        self.room.put("turned", turned)
        for kind, near in zip(("radial", "angular"), both):
            for name, values in zip(Neighborhood._fields, near):
                self.room.put(f"{kind} {name}", values)
        counts = [len(frame) for frame in frames]
        self._place(counts)
        types = torch.as_tensor(np.concatenate(types), device=self.device)
        self.room.put("kind", pair_kinds(both[0], types, len(self.settings.elements)))
        starts = torch.as_tensor(np.cumsum([0, *counts]), dtype=torch.int32, device=self.device)
        same = self.graph is not None or hasattr(self, "types")
        if not same or not torch.equal(types, self.types) or not torch.equal(starts, self.starts):
            self.types, self.starts, self.graph = types, starts, None
            stops = range(0, max(len(types), 1), ATOMS_AT_ONCE)
            self.tiles = [(first, min(first + ATOMS_AT_ONCE, len(types))) for first in stops]
            self.networks = [FusedNetwork(self.weights, types[a:b]) for a, b in self.tiles]
            self.element_energy = self.model.element_energy.index_select(0, types)
        return True

    def _place(self, counts: list[int]):
        """By how many cell vectors each atom is moved into its cell, and which cell that is."""
        self.wrapped = None
        if any(of.wrapped is not None for of in self.lists):
            parts = [
                np.zeros((count, 3)) if of.wrapped is None else of.wrapped
                for of, count in zip(self.lists, counts)
            ]
            self.wrapped = torch.as_tensor(np.concatenate(parts), device=self.device)
            owner = np.repeat(np.arange(len(counts)), counts)
            self.frame_of_atom = torch.as_tensor(owner, device=self.device)

    def _list_of(self, frame: Frame) -> DeviceList:
        types = torch.as_tensor(self.lookup[frame.numbers], device=self.device)
        return DeviceList.of(frame, types, self.settings, self.skin)

    def _moving(self) -> Moving:
        of = self.room.tensors
        radial, angular = (
            Neighborhood(*(of[f"{kind} {name}"] for name in Neighborhood._fields))
            for kind in ("radial", "angular")
        )
        where, types = (of["positions"], of["shifts"]), self.types
        vectors = listed_vectors(*where, radial, len(types), self.dtype)
        near = ListedPairs(radial.start, of["kind"], of["turned"], vectors)
        close = close_pairs(*where, types, angular, *self.of_close)
        return Moving(types, near, close, *self.tables)

    def evaluate(self) -> tuple[Tensor, ...]:
        """Energies of atoms (N,), forces (N, 3) and virials of frames (B, 9) in one, float64; virials
        of atoms (N, 9); descriptors (N, D), not scaled. Of what ``room`` holds."""
        moving, model, terms = self._moving(), self.model, self.model.terms
        n_atoms, n_frames = len(self.types), len(self.lists)
        packed = self.element_energy.new_empty(4 * n_atoms + 9 * n_frames)
        energies, forces, virials = packed.split([n_atoms, 3 * n_atoms, 9 * n_frames])
        of_values = (terms.factors, terms.coefficients, terms.quartic)
        of_slopes = (terms.slope_factors, terms.slope_coefficients, terms.quartic)
        parts, n_radial = [], self.settings.n_max[0] + 1
        for (first, last), network in zip(self.tiles, self.networks):
            near, s = neighbor_sums(moving, first, last)
            q = descriptors(near, s, *of_values)
            of_network, to_q = network.forward(q * model.q_scaler)
            q_slope = to_q * model.q_scaler
            parts.append((of_network, q, q_slope, sum_slopes(q_slope, q, s, *of_slopes, n_radial)))
        of_network, q, q_slope, slope = (whole(column) for column in zip(*parts))
        torch.add(self.element_energy, of_network, out=energies)
        pulls, parts = radial_pulls(moving, q_slope), []
        for first, last in self.tiles:
            parts.append(neighbor_forces(moving, pulls, slope, first, last))
            if self.zbl is not None:
                repelled = repulsions(moving, self.zbl, first, last)
                parts[-1] += repelled[:, :12]
                energies[first:last] += repelled[:, 12]
        sums = whole(parts)
        forces.view(-1, 3).copy_(sums[:, :3])
        virials.view(-1, 9).copy_(self._of_frames(sums[:, 3:]))
        return packed, sums[:, 3:], q

    def _of_frames(self, of_atoms: Tensor) -> Tensor:
        """Sums over the atoms of each frame (B, 9), float64: of a single one by all of the GPU."""
        if len(self.lists) == 1:
            return of_atoms.sum(0, keepdim=True, dtype=torch.float64)
        return segment_sum(of_atoms.double(), None, self.starts, 128)

    def replayed(self) -> tuple[Tensor, ...]:
        """``evaluate``, by a captured graph where that is faster; for calls after the first."""
        if not (kernels_on(self.device) and self.trusted and 0 < len(self.types) <= ATOMS_IN_GRAPH):
            return self.evaluate()
        if self.graph is None or self.captured != self.room.moved:
            direct = self._capture()
            self.graph.replay()
            # Graphs of some drivers go wrong silently: one that does not repeat is not used.
            self.trusted = repeats(direct, self.outputs)
            return direct
        self.graph.replay()
        return self.outputs

    def _capture(self) -> tuple[Tensor, ...]:
        """Capture the evaluation; returns what it gives run directly."""
        # First of all, for the memory of an earlier graph is free once nobody holds its results.
        self.graph = self.outputs = None
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            direct = self.evaluate()
        torch.cuda.current_stream(self.device).wait_stream(side)
        self.graph, self.captured = torch.cuda.CUDAGraph(), self.room.moved
        with nothing_collected(), torch.cuda.graph(self.graph):
            self.outputs = self.evaluate()
        return direct


def whole(parts: Sequence[Tensor]) -> Tensor:
    """The parts in one; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def repeats(direct: tuple[Tensor, ...], replayed: tuple[Tensor, ...]) -> bool:
    """Whether a graph gives what the same work gave run directly, bit by bit."""
    return all(torch.equal(one, other) for one, other in zip(direct, replayed))
