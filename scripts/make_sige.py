#!/usr/bin/env python3
"""Make the quick-start data set data/sige: Si-Ge, PBE, plane waves, with GPAW.

Needs GPAW (made with 22.8), its PAW setups and ASE.  Everything is written to
the current directory.  One core per worker; run as many workers as you have
cores, then collect:

    OMP_NUM_THREADS=1 python3 scripts/make_sige.py run --worker 0 --workers 2 &
    OMP_NUM_THREADS=1 python3 scripts/make_sige.py run --worker 1 --workers 2 &
    wait
    python3 scripts/make_sige.py collect     # writes train.xyz, test.xyz
    python3 scripts/make_sige.py fd          # finite-difference check of force/virial
    python3 scripts/make_sige.py kcheck      # the k-point error of a few frames
    python3 scripts/make_sige.py list        # only show what would be computed

Results go to results_<worker>.jsonl, one line per finished frame, so a stop
loses at most the frames in progress; 'run' again skips what is done.

Energies are electronic free energies (E - TS) of non-spin-polarised PBE: this
is the quantity whose derivatives GPAW's forces and stresses are.
"""

import argparse
import glob
import itertools
import json
import os
import sys
import time

import numpy as np
from ase import Atoms
from ase.build import bulk

SEED = 20240607
ECUT = 300.0  # eV, plane-wave cutoff
KT = 0.1  # eV, Fermi-Dirac smearing
H = 0.245  # Angstrom, largest spacing of the real-space/FFT grid
# Number of k-points along each reciprocal axis: round(R / d), where d is the
# distance between lattice planes (the lattice constant, for a cubic cell).
R_FINE = 28.0  # Angstrom; 5x5x5 for an 8-atom diamond cell
R_COARSE = 23.0  # Angstrom; 4x4x4 for an 8-atom diamond cell
R_METAL = 34.0  # Angstrom; 6x6x6 for a cell of that size (metallic frames)
A0 = {"Si": 5.47, "Ge": 5.76}  # Angstrom, close to PBE lattice constants
GOOD_N = [12, 16, 18, 20, 24, 25, 27, 30, 32, 36, 40, 45, 48, 50, 54, 60]


# ----------------------------------------------------------------- structures
def vegard(symbols):
    return float(np.mean([A0[s] for s in symbols]))


def min_distance(atoms):
    """Shortest distance between two atoms, periodic images included."""
    cell, pos = atoms.cell.array, atoms.positions
    d = pos[None] - pos[:, None]
    best = np.inf
    for n in itertools.product((-1, 0, 1), repeat=3):
        r = np.linalg.norm(d + np.dot(n, cell), axis=-1)
        if n == (0, 0, 0):
            r[np.diag_indices(len(r))] = np.inf
        best = min(best, r.min())
    return best


def diamond8(symbols):
    atoms = bulk("Si", "diamond", a=vegard(symbols), cubic=True)
    atoms.symbols = symbols
    return atoms


def random_strain(rng, iso=(-0.06, 0.08), shear=0.06, dev=0.02):
    """Deformation matrix: isotropic strain, engineering shear up to 'shear'
    and deviatoric diagonal strain up to 'dev'."""
    e = np.zeros((3, 3))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        e[i, j] = e[j, i] = rng.uniform(-shear, shear) / 2
    d = rng.uniform(-dev, dev, 3)
    return (1 + rng.uniform(*iso)) * (np.eye(3) + e + np.diag(d - d.mean()))


def strained_rattled(atoms, rng, sigma, dmin=1.9, **kwargs):
    """Random strain and Gaussian displacements; drawn again until no pair is
    closer than dmin."""
    while True:
        b = atoms.copy()
        b.set_cell(b.cell.array @ random_strain(rng, **kwargs).T, scale_atoms=True)
        s = rng.uniform(*sigma)
        b.positions += rng.normal(0, s, b.positions.shape)
        if min_distance(b) > dmin:
            return b


def alloy_symbols(rng, n):
    nge = rng.integers(1, n)
    s = np.array(["Ge"] * nge + ["Si"] * (n - nge))
    rng.shuffle(s)
    return list(s)


def any_symbols(rng, n, i):
    """Cycle through Si, Ge and a random alloy."""
    return [["Si"] * n, ["Ge"] * n, alloy_symbols(rng, n)][i % 3]


ZB = ["Si", "Ge"] * 4  # zincblende decoration of ASE's cubic diamond cell
FIXED = {"Si": ["Si"] * 8, "Ge": ["Ge"] * 8, "zb": ZB}


def eos(rng, i):
    kind = ["Si", "Ge", "zb"][i % 3]
    x = [0.0, -0.06, 0.08, -0.03, 0.04][i // 3]
    a = diamond8(FIXED[kind])
    a.set_cell(a.cell * (1 + x), scale_atoms=True)
    return a, f"{kind}_eos"


def crystal(kind, sigma, label):
    def make(rng, i):
        sym = FIXED.get(kind) or alloy_symbols(rng, 8)
        return strained_rattled(diamond8(sym), rng, sigma), f"{kind}_{label}"

    return make


def cell16(rng, i):
    a = diamond8(any_symbols(rng, 8, i)).repeat((2, 1, 1))
    if i % 3 == 2:
        a.symbols = alloy_symbols(rng, 16)
    return strained_rattled(a, rng, (0.03, 0.25)), "diamond16"


def simple_cubic(rng, i):
    sym = any_symbols(rng, 8, i)
    a = (2.55 * vegard(sym) / A0["Si"]) * rng.uniform(0.96, 1.08)
    b = Atoms(
        "Si8",
        cell=[2 * a] * 3,
        pbc=True,
        scaled_positions=list(itertools.product((0, 0.5), repeat=3)),
    )
    b.symbols = sym
    return strained_rattled(b, rng, (0.0, 0.12), iso=(0, 0)), "sc"


def bcc(rng, i):
    sym = any_symbols(rng, 8, i)
    a = (3.10 * vegard(sym) / A0["Si"]) * rng.uniform(0.96, 1.06)
    b = Atoms("Si2", cell=[a] * 3, pbc=True, scaled_positions=[(0, 0, 0), (0.5, 0.5, 0.5)]).repeat(
        (2, 2, 1)
    )
    b.symbols = sym
    return strained_rattled(b, rng, (0.0, 0.12), iso=(0, 0)), "bcc"


def beta_tin(rng, i):
    sym = any_symbols(rng, 4, i)
    a = (4.80 * vegard(sym) / A0["Si"]) * rng.uniform(0.96, 1.06)
    b = Atoms(
        "Si4",
        cell=[a, a, 0.55 * a],
        pbc=True,
        scaled_positions=[(0, 0, 0), (0.5, 0, 0.25), (0.5, 0.5, 0.5), (0, 0.5, 0.75)],
    )
    b.symbols = sym
    return strained_rattled(b, rng, (0.0, 0.12), iso=(0, 0)), "beta_tin"


def short_bond(rng, i):
    """Diamond cell in which one nearest-neighbour pair is pushed together."""
    while True:
        a = strained_rattled(diamond8(any_symbols(rng, 8, i)), rng, (0.03, 0.12), iso=(-0.03, 0.03))
        d = a.get_all_distances(mic=True)
        d[np.diag_indices(8)] = np.inf
        p, q = np.unravel_index(rng.permutation(d.ravel().argsort()[:8])[0], d.shape)
        v = a.get_distance(p, q, mic=True, vector=True)
        target = rng.uniform(1.90, 2.10) * (vegard(a.symbols) / A0["Si"])
        v *= (np.linalg.norm(v) - target) / np.linalg.norm(v) / 2
        a.positions[p] += v
        a.positions[q] -= v
        if 1.87 < min_distance(a) < 2.25:
            return a, "short_bond"


def liquid(rng, i):
    """Random positions in a cubic box, no pair closer than dmin."""
    sym = any_symbols(rng, 8, i)
    while True:
        a = vegard(sym) * rng.uniform(0.97, 1.05)
        dmin = rng.uniform(1.9, 2.3) * vegard(sym) / A0["Si"]
        b = Atoms(cell=[a] * 3, pbc=True)
        for _ in range(2000):
            c = b + Atoms("Si", positions=[rng.uniform(0, a, 3)])
            if len(c) == 1 or min_distance(c) > dmin:
                b = c
            if len(b) == 8:
                b.symbols = sym
                return b, "liquid"


def isolated(rng, i):
    return Atoms(["Si", "Ge"][i], cell=[12.0] * 3, pbc=True, positions=[[6.0] * 3]), "isolated"


COLD, HOT = (0.03, 0.12), (0.12, 0.25)
FAMILIES = [  # (maker, number of frames, k-point radius R)
    (isolated, 2, 0.0),
    (eos, 15, R_FINE),
    (crystal("Si", COLD, "cold"), 16, R_FINE),
    (crystal("Ge", COLD, "cold"), 16, R_FINE),
    (crystal("zb", COLD, "cold"), 10, R_FINE),
    (crystal("alloy", COLD, "cold"), 18, R_FINE),
    (crystal("Si", HOT, "hot"), 16, R_COARSE),
    (crystal("Ge", HOT, "hot"), 16, R_COARSE),
    (crystal("zb", HOT, "hot"), 8, R_COARSE),
    (crystal("alloy", HOT, "hot"), 24, R_COARSE),
    (cell16, 6, R_COARSE),
    (simple_cubic, 4, R_METAL),
    (bcc, 3, R_METAL),
    (beta_tin, 4, R_METAL),
    (short_bond, 5, R_COARSE),
    (liquid, 8, R_METAL),
]


def frames():
    """The whole list of (id, atoms, config_type, R), in the order of
    computation: shuffled, so that a run that is stopped early still has every
    family.  Each frame has a seed of its own."""
    out = []
    for f, (make, n, radius) in enumerate(FAMILIES):
        for i in range(n):
            atoms, name = make(np.random.default_rng([SEED, f, i]), i)
            out.append((f"{name}-{i}", atoms, name, radius))
    order = np.random.default_rng(SEED).permutation(len(out))
    return [out[i] for i in order]


# ------------------------------------------------------------------------ DFT
def mesh(atoms, radius):
    d = 1 / np.linalg.norm(atoms.cell.reciprocal(), axis=1)  # plane distances
    return [max(1, round(radius / x)) for x in d]


def kpoints(n):
    """n1 x n2 x n3 mesh, always half a step away from Gamma, odd n too."""
    if list(n) == [1, 1, 1]:
        return np.zeros((1, 3))
    axes = [((np.arange(m) + 0.5) / m + 0.5) % 1 - 0.5 for m in n]
    return np.array(list(itertools.product(*axes)))


def grid(atoms):
    return [min(g for g in GOOD_N if g >= x / H) for x in atoms.cell.lengths()]


def calculate(atoms, n, gpts=None, txt=None, bands=1.25):
    from gpaw import GPAW, PW, FermiDirac, Mixer
    from gpaw.fftw import MEASURE

    nocc = 2 * len(atoms)  # 4 valence electrons an atom
    for beta, solver in ((0.6, "rmm-diis"), (0.2, "dav")):
        a = atoms.copy()
        a.calc = GPAW(
            # dedecut: the Pulay stress is added, so that the virial is the
            # strain derivative of the energy at this fixed cutoff
            mode=PW(ECUT, dedecut="estimate", fftwflags=MEASURE),
            xc="PBE",
            kpts=kpoints(n),
            gpts=gpts or grid(atoms),
            nbands=max(8, int(np.ceil(bands * nocc))) + 2 * (nocc < 16),
            occupations=FermiDirac(KT),
            symmetry={"point_group": False},  # k = -k only
            convergence={"energy": 1e-4, "density": 2e-4, "eigenstates": 2e-7},
            mixer=Mixer(beta, 8, 1),
            eigensolver=solver,
            maxiter=80,
            txt=txt,
        )
        try:
            e = a.get_potential_energy(force_consistent=True)
        except Exception as error:  # noqa: BLE001 - not converged: once more
            print("retry:", repr(error)[:200], flush=True)
            continue
        return {
            "energy": float(e),
            "e0": float(a.get_potential_energy()),
            "forces": a.get_forces().tolist(),
            "virial": (-a.get_volume() * a.get_stress(voigt=False)).tolist(),
            "iterations": int(a.calc.get_number_of_iterations()),
            "fermi": float(a.calc.get_fermi_level()),
        }
    return None


def run(args):
    done = {r["id"] for r in load()}
    t0 = time.time()
    with open(f"results_{args.worker}.jsonl", "a") as out:
        for i, (ident, atoms, name, radius) in enumerate(frames()):
            if (
                i % args.workers != args.worker
                or ident in done
                or (args.only and name not in args.only)
            ):
                continue
            if time.time() - t0 > 60 * args.max_minutes:
                print("time is up", flush=True)
                break
            t, n = time.time(), mesh(atoms, radius)
            r = calculate(
                atoms, n, txt=f"gpaw_{args.worker}.txt", bands=1.6 if radius == R_METAL else 1.25
            )
            if r is None:
                print(i, ident, "FAILED", flush=True)
                continue
            r.update(
                id=ident,
                index=i,
                config_type=name,
                mesh=n,
                gpts=grid(atoms),
                seconds=time.time() - t,
                symbols=atoms.get_chemical_symbols(),
                cell=atoms.cell.array.tolist(),
                positions=atoms.positions.tolist(),
            )
            out.write(json.dumps(r) + "\n")
            out.flush()
            os.fsync(out.fileno())
            print(
                f"{i:3d} {ident:14s} {len(atoms):2d} {n} "
                f"{r['seconds']:5.1f}s it {r['iterations']} "
                f"E/at {r['energy'] / len(atoms):.4f}"
                f" Fmax {np.abs(r['forces']).max():.2f}"
                f" dmin {min_distance(atoms):.2f}",
                flush=True,
            )


# --------------------------------------------------------------------- output
def load():
    rows = []
    for name in sorted(glob.glob("results_*.jsonl")):
        with open(name) as f:
            rows += [json.loads(x) for x in f if x.endswith("\n")]
    return sorted(rows, key=lambda r: r["index"])


def xyz(r):
    """One frame in GPUMD/NEP extended XYZ; the virial is -V * stress, in eV.

    An isolated atom gets a zero virial, which is what it is by definition;
    GPAW's own values are 0.06 eV for Ge and 0.004 eV for Si."""
    if r["config_type"] == "isolated":
        r = dict(r, virial=np.zeros(9))
    nums = " ".join(f"{x:.8f}" for x in np.ravel(r["cell"]))
    vir = " ".join(f"{x:.6f}" for x in np.ravel(r["virial"]))
    comment = (
        f'energy={r["energy"]:.8f} Lattice="{nums}" virial="{vir}" '
        f'config_type={r["config_type"]} pbc="T T T" '
        "Properties=species:S:1:pos:R:3:forces:R:3"
    )
    lines = [str(len(r["symbols"])), comment]
    for s, p, f in zip(r["symbols"], r["positions"], r["forces"]):
        lines.append(
            f"{s:2s} " + " ".join(f"{x:13.8f}" for x in p) + " " + " ".join(f"{x:12.6f}" for x in f)
        )
    return "\n".join(lines) + "\n"


def stratum(config_type):
    """Families that are split together, since each alone is too small."""
    if config_type.endswith("_eos"):
        return "eos"
    if config_type in ("sc", "bcc", "beta_tin"):
        return "sc+bcc+beta_tin"
    return config_type


def collect(args):
    """85/15 split within every family; the isolated atoms only in train."""
    rows = load()
    rng = np.random.default_rng(SEED)
    families = {}
    for r in rows:
        families.setdefault(stratum(r["config_type"]), []).append(r["id"])
    test = set()
    for name in sorted(families):
        ids = sorted(families[name])
        k = max(1, int(np.floor(0.15 * len(ids) + 0.5)))
        k = 0 if name == "isolated" else k
        test |= set(rng.permutation(ids)[:k])
        print(f"{name:16s} {len(ids):3d} frames, {k} in test")
    for name, keep in (
        ("train", lambda r: r["id"] not in test),
        ("test", lambda r: r["id"] in test),
    ):
        part = [r for r in rows if keep(r)]
        with open(f"{name}.xyz", "w") as f:
            f.write("".join(xyz(r) for r in part))
        print(name, len(part), "frames", sum(len(r["symbols"]) for r in part), "atoms")


# --------------------------------------------------------------------- checks
def find(ident):
    return next(x for x in frames() if x[0] == ident)


def fd(args):
    """Central differences of the energy: one atom's force, and the virial
    along an isotropic, a uniaxial and a shear strain."""
    _, atoms, _, radius = find(args.frame)
    n, g = mesh(atoms, radius), grid(atoms)
    r = calculate(atoms, n, g)

    def energy(strain=None, move=None):
        b = atoms.copy()
        if strain is not None:
            b.set_cell(b.cell.array @ (np.eye(3) + strain).T, scale_atoms=True)
        if move is not None:
            b.positions[0] += move
        return calculate(b, n, g)["energy"]

    h = 0.01
    for c in range(3):
        m = h * np.eye(3)[c]
        f = -(energy(move=m) - energy(move=-m)) / (2 * h)
        print(
            f"force atom 0 {'xyz'[c]}: analytic {r['forces'][0][c]:.4f} "
            f"finite difference {f:.4f} eV/A",
            flush=True,
        )
    h, v = 0.005, np.array(r["virial"])
    for name, e in (
        ("isotropic", np.eye(3)),
        ("xx", np.diag([1.0, 0, 0])),
        ("xy", np.array([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])),
    ):
        num = -(energy(strain=h * e) - energy(strain=-h * e)) / (2 * h)
        print(
            f"virial {name}: analytic {(v * e).sum():.4f} finite difference "
            f"{num:.4f} eV ({len(atoms)} atoms)",
            flush=True,
        )


def kcheck(args):
    """Error of the data set's k mesh against a mesh for R + 6 Angstrom."""
    for ident in args.frames:
        _, atoms, _, radius = find(ident)
        n, n2 = mesh(atoms, radius), mesh(atoms, radius + 6)
        a = next((x for x in load() if x["id"] == ident), None) or calculate(atoms, n, bands=1.6)
        b = calculate(atoms, n2, bands=1.6 if radius == R_METAL else 1.25)
        df = 1e3 * (np.array(a["forces"]) - b["forces"])
        dv = 1e3 * (np.array(a["virial"]) - b["virial"]) / len(atoms)
        print(
            f"{ident} {n} vs {n2}: dE "
            f"{1e3 * (a['energy'] - b['energy']) / len(atoms):.2f} "
            f"meV/atom, dF rms {df.std():.1f} max {np.abs(df).max():.1f} "
            f"meV/A, force rms {np.std(b['forces']) * 1e3:.0f}, dvirial max "
            f"{np.abs(dv).max():.1f} meV/atom",
            flush=True,
        )


def show(args):
    for i, (ident, atoms, name, radius) in enumerate(frames()):
        print(
            i,
            ident,
            atoms.get_chemical_formula(),
            mesh(atoms, radius),
            grid(atoms),
            f"V/at {atoms.get_volume() / len(atoms):.1f}",
            f"dmin {min_distance(atoms):.2f}",
        )


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sub = p.add_subparsers(dest="command", required=True)
    q = sub.add_parser("run")
    q.add_argument("--worker", type=int, default=0)
    q.add_argument("--workers", type=int, default=1)
    q.add_argument("--max-minutes", type=float, default=1e9)
    q.add_argument("--only", nargs="*", help="config_types to compute")
    q.set_defaults(func=run)
    sub.add_parser("collect").set_defaults(func=collect)
    q = sub.add_parser("fd")
    q.add_argument("--frame", default="zb_hot-3")
    q.set_defaults(func=fd)
    q = sub.add_parser("kcheck")
    q.add_argument(
        "frames",
        nargs="*",
        default=["Si_cold-0", "Ge_cold-12", "alloy_cold-7", "alloy_hot-0", "liquid-5"],
    )
    q.set_defaults(func=kcheck)
    sub.add_parser("list").set_defaults(func=show)
    args = p.parse_args()
    args.func(args)


if __name__ == "__main__":
    sys.exit(main())
