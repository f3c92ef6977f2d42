"""What the comment line of a frame means: cell, energy, virial and weights, with their checks."""

from __future__ import annotations

from math import hypot, prod

import numpy as np

from nepkit.data.comment import (
    Fault,
    Layout,
    parse_items,
    parse_nine,
    parse_number,
    parse_pbc,
    parse_properties,
)

# Two virials of a frame that differ by more than this (eV/atom) contradict each other, as in GPUMD.
VIRIAL_TOLERANCE = 1e-3
# Upper and lower triangle of a virial may differ by this fraction of its largest component:
# integration grids leave a fraction of a percent, whereas a wrong order, or a tensor that is no
# virial, shows in differences as large as the components themselves.
ASYMMETRY_TOLERANCE = 0.01
# A cell vector shorter than this (Å), or unit vectors spanning less than this, span no cell.
FLATNESS = 1e-6


def parse_comment(comment: bytes, num_atoms: int) -> tuple[Layout, dict]:
    """Column layout, and what else the comment line says as keyword arguments of ``Frame``.

    Units: eV, Å; ``virial`` is (3, 3), total, from ``virial`` or as -``stress`` x volume.
    Raises ``Fault`` for anything that cannot be what the user means.
    """
    items = parse_items(comment)
    if "properties" not in items:
        raise Fault(
            "the comment line has no Properties; "
            "write for example Properties=species:S:1:pos:R:3:forces:R:3"
        )
    layout = parse_properties(items["properties"])
    cell, pbc = parse_cell(items)
    labels = {
        "cell": cell,
        "pbc": pbc,
        "virial": parse_virial(items, cell, num_atoms),
        "source": items.get("config_type", "").replace('\\"', '"').strip(),
    }
    for key in ("energy", "weight", "energy_weight"):
        if key in items:
            labels[key] = parse_number(key, items[key])
    if not 0 < labels.get("weight", 1.0) <= 100:
        raise Fault(f"weight={labels['weight']:g} must be above 0 and at most 100")
    if labels.get("energy_weight", 1.0) < 0:
        raise Fault(f"energy_weight={labels['energy_weight']:g} must not be negative")
    return layout, labels


def parse_cell(items: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Cell (3, 3), rows are vectors in Å, and periodic directions (3,) bool.

    Without pbc a frame is periodic where it has a Lattice, as in GPUMD.
    """
    has_lattice = "lattice" in items
    pbc = parse_pbc(items["pbc"]) if "pbc" in items else (has_lattice,) * 3
    if not has_lattice:
        if any(pbc):
            raise Fault('pbc is true but there is no Lattice; add Lattice="..." or set pbc="F F F"')
        return np.zeros((3, 3)), np.array(pbc)
    values = parse_nine("Lattice", items["lattice"])
    cell = [values[0:3], values[3:6], values[6:9]]
    vectors = [vector for vector, periodic in zip(cell, pbc) if periodic]
    lengths = [hypot(*vector) for vector in vectors]
    if lengths and min(lengths) < FLATNESS:
        raise Fault(
            "a cell vector is zero although its direction is periodic; mend the Lattice or set pbc"
        )
    if len(vectors) > 1:
        normal = cross(vectors[0], vectors[1])
        span = abs(dot(normal, vectors[2])) if all(pbc) else hypot(*normal)
        if span < FLATNESS * prod(lengths):
            raise Fault("the periodic cell vectors are linearly dependent; mend the Lattice")
    return np.array(cell), np.array(pbc)


def parse_virial(items: dict[str, str], cell: np.ndarray, num_atoms: int) -> np.ndarray | None:
    """Virial (3, 3) in eV, symmetric; where both are given, the virial rather than the stress."""
    virial = from_stress = None
    if "virial" in items:
        virial = symmetric("virial", parse_nine("virial", items["virial"]), num_atoms)
    if "stress" in items:
        stress = parse_nine("stress", items["stress"])
        a, b, c = cell.tolist()
        volume = abs(dot(cross(a, b), c))
        if volume < FLATNESS:
            raise Fault("stress needs a cell with a volume; give the virial or remove the stress")
        from_stress = symmetric("stress", [-volume * value for value in stress], num_atoms)
    if virial is None or from_stress is None:
        return from_stress if virial is None else virial
    difference = np.abs(virial - from_stress) / num_atoms
    place = np.unravel_index(difference.argmax(), (3, 3))
    if difference[place] > VIRIAL_TOLERANCE:
        raise Fault(
            f"virial and stress disagree in {'xyz'[place[0]]}{'xyz'[place[1]]}: "
            f"{virial[place] / num_atoms:.6g} eV/atom by virial, "
            f"{from_stress[place] / num_atoms:.6g} eV/atom by -stress x volume; remove one"
        )
    return virial


def symmetric(key: str, values: list[float], num_atoms: int) -> np.ndarray:
    """Symmetric part (3, 3) of nine virial components in eV, if the rest is mere noise."""
    xx, xy, xz, yx, yy, yz, zx, zy, zz = values
    asymmetry = max(abs(xy - yx), abs(xz - zx), abs(yz - zy))
    # The absolute part lets through the rounding in frames that are nearly free of stress.
    if asymmetry > ASYMMETRY_TOLERANCE * max(map(abs, values)) + VIRIAL_TOLERANCE * num_atoms:
        raise Fault(
            f"{key} is not symmetric (its virial components differ by {asymmetry / num_atoms:.6g} "
            "eV/atom); the order is xx xy xz yx yy yz zx zy zz"
        )
    xy, xz, yz = 0.5 * (xy + yx), 0.5 * (xz + zx), 0.5 * (yz + zy)
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def cross(a: list[float], b: list[float]) -> list[float]:
    """Cross product: for three numbers plain floats are ten times faster than numpy."""
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def dot(a: list[float], b: list[float]) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
