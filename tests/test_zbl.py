"""ZBL: values by the formula, forces and virials by finite differences."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from structures import (
    differentiated_energy,
    evaluate,
    make_frame,
    make_ready,
    model_settings,
    odd_frames,
    random_file,
    zbl_forms,
)

from nepkit.config import Zbl
from nepkit.model.conversion import model_from_file
from nepkit.model.zbl import zbl_of
from nepkit.units import ATOMIC_NUMBERS, COVALENT_RADII

ELEMENTS = ("Te", "O", "Si")
FORMS = zbl_forms(ELEMENTS)
UNIVERSAL = ((0.18175, 3.1998), (0.50986, 0.94229), (0.28022, 0.4029), (0.02817, 0.20162))


def terms(frame, zbl, angular=3.4):
    settings = model_settings(ELEMENTS, angular=angular, zbl=zbl)
    prepared = make_ready([frame], settings)
    return zbl_of(prepared, settings)


def dimer(first, second, distance):
    return make_frame(
        (first, second), [[0.3, 0, 0], np.array([0.3, 0, 0]) + distance * np.array([1, 2, 2]) / 3]
    )


def formula(first, second, r, inner, outer, waves=UNIVERSAL):
    """E_ij of REFERENCE: K Z Z / r phi(r / a) fc(r)."""
    z = [ATOMIC_NUMBERS[first], ATOMIC_NUMBERS[second]]
    x = r * 2.134563 * (z[0] ** 0.23 + z[1] ** 0.23)
    phi = sum(a * math.exp(-b * x) for a, b in waves)
    if r >= outer:
        cutoff = 0.0
    elif r < inner:
        cutoff = 1.0
    else:
        cutoff = 0.5 * math.cos(math.pi * (r - inner) / (outer - inner)) + 0.5
    return 14.399645 * z[0] * z[1] / r * phi * cutoff


@pytest.mark.parametrize("r", [0.4, 1.1, 1.39, 1.41, 2.0, 2.19, 2.79, 2.81, 3.3])
@pytest.mark.parametrize("pair", [("Te", "O"), ("O", "Te"), ("O", "O"), ("Si", "Te")], ids="-".join)
class TestDimer:
    """Each form on one pair of atoms."""

    def check(self, pair, r, zbl, *cutoffs_and_waves):
        found = terms(dimer(*pair, r), zbl)
        wanted = formula(*pair, r, *cutoffs_and_waves)
        assert found.energy == pytest.approx([wanted], rel=1e-12, abs=1e-14)

    def test_universal(self, pair, r):
        self.check(pair, r, FORMS["universal"], 1.4, 2.8)

    def test_typewise(self, pair, r):
        # GPUMD: inner = 0, outer from the covalent radii but never above the file's.
        radii = [COVALENT_RADII[ATOMIC_NUMBERS[element] - 1] for element in pair]
        self.check(pair, r, FORMS["typewise"], 0.0, min(0.9 * sum(radii), 2.8))

    def test_flexible(self, pair, r):
        t1, t2 = sorted(ELEMENTS.index(element) for element in pair)
        row = FORMS["flexible"].flexible[t1 * 3 - t1 * (t1 - 1) // 2 + t2 - t1]
        self.check(pair, r, FORMS["flexible"], row[0], row[1], list(zip(row[2::2], row[3::2])))


def test_only_pairs_within_the_angular_cutoff():
    zbl = Zbl(1.5, 3.0)
    assert terms(dimer("Te", "O", 2.9), zbl, angular=3.0).energy > 0
    assert terms(dimer("Te", "O", 2.9), zbl, angular=2.8).energy == 0


def test_none():
    for zbl in (None, FORMS["universal"]):
        found = terms(odd_frames(ELEMENTS)["far apart"], zbl)
        assert found.energy.tolist() == [0]
        assert not found.forces.any() and not found.virial.any()


@pytest.mark.parametrize("zbl", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "kind", ["bulk", "left-handed", "thin", "two atoms", "slab", "wire", "molecule"]
)
def test_forces_and_virials_by_finite_differences(kind, zbl):
    frame = odd_frames(ELEMENTS, seed=3)[kind]
    found = terms(frame, zbl)

    def energies(frames):
        return [terms(f, zbl).energy[0] for f in frames]

    assert found.energy > 1e-4
    forces, virial = differentiated_energy(energies, frame)
    assert found.forces == pytest.approx(forces, rel=1e-7, abs=1e-7)
    assert found.virial[0] == pytest.approx(virial, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("zbl", FORMS.values(), ids=FORMS)
def test_predictions_add_it(zbl):
    frames = list(odd_frames(ELEMENTS).values())
    file = random_file(model_settings(ELEMENTS, zbl=zbl))
    bare = replace(file, settings=replace(file.settings, zbl=None))
    with_zbl, without = (
        evaluate(model_from_file(f, device="cpu", dtype=torch.float64), frames)
        for f in (file, bare)
    )
    own = [terms(frame, zbl) for frame in frames]
    energy = np.concatenate([t.energy for t in own])
    assert with_zbl.energy - without.energy == pytest.approx(energy, abs=1e-9)
    forces = np.concatenate([t.forces for t in own])
    assert with_zbl.forces - without.forces == pytest.approx(forces, abs=1e-9)
    virial = np.concatenate([t.virial for t in own])
    assert with_zbl.virial - without.virial == pytest.approx(virial, abs=1e-9)


def test_zbl_of_a_data_set_is_computed_once():
    settings = model_settings(zbl=Zbl(1.0, 2.0))
    prepared = make_ready(odd_frames().values(), settings)
    first = zbl_of(prepared, settings)
    assert len(first.energy) == len(prepared) and zbl_of(prepared, settings) is first
    other = zbl_of(prepared, replace(settings, zbl=Zbl(1.2, 2.4)))
    assert (first.virial != other.virial).any()
