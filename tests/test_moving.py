"""Lists and sums for moving atoms on GPUs, on CPU tensors: cells, tiles, and what is kept between."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from structures import (
    TWO,
    brute_pairs,
    evaluate,
    model_settings,
    odd_frames,
    random_model,
    zbl_forms,
)
from test_neighbors import sorted_pairs

from nepkit.calculator import device
from nepkit.calculator.device import DeviceField
from nepkit.calculator.device_lists import DeviceList
from nepkit.data import cell_list
from nepkit.data.prepared import type_lookup
from nepkit.ops.listed import Neighborhood, turned_places

SETTINGS = model_settings(
    TWO, radial=(4.5, 3.9), angular=(3.0, 3.6), zbl=zbl_forms(TWO)["flexible"]
)
KINDS = odd_frames(TWO)


def pairs_of(found: DeviceList, near):
    """Ends (P, 2) and vectors (P, 3) of a list, from the reference's own positions."""
    positions, shifts = found.placed(found.reference)
    center = np.repeat(np.arange(len(positions)), np.diff(near.start.numpy()))
    neighbor = near.neighbor.numpy()
    vectors = positions[neighbor] - positions[center] + shifts[near.shift.numpy()]
    return np.stack([center, neighbor], axis=1), vectors


@pytest.mark.parametrize("at_once", [1 << 24, 7], ids=["in one go", "in many"])
@pytest.mark.parametrize("kind", KINDS)
def test_cells_find_the_pairs_of_a_sum_over_images(kind, at_once, monkeypatch):
    monkeypatch.setattr(cell_list, "CANDIDATES_AT_ONCE", at_once)
    monkeypatch.setattr(cell_list, "POINTS_AT_ONCE", at_once)
    frame, skin = KINDS[kind], 0.6
    types = type_lookup(TWO)[frame.numbers]
    found = DeviceList.of(frame, torch.as_tensor(types), SETTINGS, skin)
    for near, cutoffs in (
        (found.radial, SETTINGS.radial_cutoff), (found.angular, SETTINGS.angular_cutoff)
    ):  # fmt: skip
        wanted = brute_pairs(frame, types, tuple(cutoff + skin for cutoff in cutoffs))
        ends, vectors = sorted_pairs(*pairs_of(found, near))
        wanted_ends, wanted_vectors = sorted_pairs(*wanted)
        assert np.array_equal(ends, wanted_ends)
        assert np.allclose(vectors, wanted_vectors, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_know_themselves_from_the_other_end(kind):
    frame = KINDS[kind]
    found = DeviceList.of(frame, torch.as_tensor(type_lookup(TWO)[frame.numbers]), SETTINGS, 0.6)
    ends, vectors = pairs_of(found, found.radial)
    place = found.turned.numpy()
    assert np.array_equal(ends[place], ends[:, ::-1])
    assert np.array_equal(place[place], np.arange(len(place)))
    assert np.allclose(vectors[place], -vectors, rtol=0, atol=1e-12)


def test_a_pair_of_one_end_alone_is_its_own_other_end():
    start, neighbor, shift = [0, 2, 3, 3], [1, 2, 0], [0, 0, 0]
    types = torch.int64, torch.int32, torch.int32
    near = Neighborhood(
        *(torch.tensor(v, dtype=t) for v, t in zip((start, neighbor, shift), types))
    )
    assert turned_places(near, 1).tolist() == [2, 1, 0]


def test_atoms_far_apart_need_no_cells_between(monkeypatch):
    frame = KINDS["molecule"]
    positions = np.concatenate([frame.positions, frame.positions + 1e7])
    moved = type(frame)(np.tile(frame.numbers, 2), positions, frame.cell, frame.pbc)
    types = torch.as_tensor(type_lookup(TWO)[moved.numbers])
    one = DeviceList.of(frame, types[: len(frame)], SETTINGS, 0.5)
    both = DeviceList.of(moved, types, SETTINGS, 0.5)
    assert len(both.radial.neighbor) == 2 * len(one.radial.neighbor) > 0


def everything(field, frames):
    found = field(frames, per_atom=True, descriptors=True)
    return [found.energies, found.forces, found.virials, found.atom_virials, found.descriptors]


def test_tiles_and_company_change_nothing(monkeypatch):
    model, frames = random_model(SETTINGS), list(KINDS.values())
    whole = everything(DeviceField(model, 0.5), frames)
    wanted = evaluate(model, frames)
    assert whole[1] == pytest.approx(wanted.forces, abs=1e-10)
    assert whole[2] == pytest.approx(wanted.virial, abs=1e-10)
    monkeypatch.setattr(device, "ATOMS_AT_ONCE", 7)
    field = DeviceField(model, 0.5)
    for one, other in zip(everything(field, frames), whole):
        assert one == pytest.approx(other, abs=1e-12)
    assert len(field.tiles) > 7
    alone = [everything(field, [frame]) for frame in frames]
    for k, other in enumerate(whole):
        assert np.concatenate([one[k] for one in alone]) == pytest.approx(other, abs=1e-11)


def test_only_what_moved_too_far_is_looked_for_again():
    model, frames = random_model(SETTINGS), [KINDS["bulk"], KINDS["slab"], KINDS["molecule"]]
    field = DeviceField(model, 0.5)
    field(frames)
    assert field.rebuilds == 3
    step = np.zeros_like(KINDS["slab"].positions)
    step[2] = 0.3, 0.0, 0.0
    slab = type(frames[1])(
        frames[1].numbers, frames[1].positions + step, frames[1].cell, frames[1].pbc
    )
    found = field([frames[0], slab, frames[2]])
    assert field.rebuilds == 4
    wanted = evaluate(model, [frames[0], slab, frames[2]])
    assert found.forces == pytest.approx(wanted.forces, abs=1e-10)


def test_what_was_begun_is_used_where_the_lists_are_good(monkeypatch):
    model, frame = random_model(SETTINGS), KINDS["bulk"]
    field = DeviceField(model, 0.5)
    assert field.begin([frame]) is None  # no lists yet
    field([frame])
    for step, times in ((0.05, 1), (1.0, 2)):
        moved, work = replace(frame, positions=frame.positions.copy()), []
        moved.positions[0] += step
        evaluate_once = DeviceField.evaluate
        monkeypatch.setattr(field, "evaluate", lambda: work.append(1) or evaluate_once(field))
        found = field([moved], begun=field.begin([moved]))
        assert len(work) == times
        assert found.forces == pytest.approx(evaluate(model, [moved]).forces, abs=1e-10)
    assert field.rebuilds == 2
