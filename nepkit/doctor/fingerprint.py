"""Numbers that tell structures apart, and stay when one is moved, turned, wrapped or reordered."""

from __future__ import annotations

import numpy as np

# Structures are the same if the first two numbers agree to this part, the others to so much an
# atom: some 1e-5 Å of each position.
SAME, SAME_LENGTH = 1e-5, 2e-5
ROUNDS = 3
GOLDEN = 0.5 * (5.0**0.5 - 1.0)


def fingerprints(
    numbers: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    vectors: np.ndarray,
    part: np.ndarray,
    frames: tuple[np.ndarray, int],
) -> np.ndarray:
    """Fingerprints (F, 4) of frames from their pairs, each pair once.

    ``numbers`` (N,) atomic numbers; ``ends`` centre and neighbour (P,) of each pair, ``vectors``
    (P, 3) between them, ``part`` (P,) their distance over the cutoff; ``frames`` the frame of each
    atom (N,) and how many there are.

    All are smooth at the cutoff. The first is a sum over pairs. Alloys on one lattice with equal
    numbers of pairs differ in the second, in which every atom hears of its neighbours, and of
    theirs, and in the last, of angles. The third is of first order in any displacement, where in
    a crystal of high symmetry the others change by squares.
    """
    center, neighbor = ends
    of_atom, n_frames = frames
    n_atoms = len(numbers)
    charge = 1.0 + GOLDEN * numbers % 1.0  # elements next to each other differ most
    near = (1.0 - np.minimum(part, 1.0) ** 2) ** 2
    unit = vectors / np.linalg.norm(vectors, axis=1)[:, None]

    def gathered(weight, values, sign=1.0):
        """Sum over the neighbours of each atom; ``sign`` of the reversed pair."""
        here = np.bincount(center, weight * values[neighbor], n_atoms)
        return here + sign * np.bincount(neighbor, weight * values[center], n_atoms)

    def total(values):
        return np.bincount(of_atom, charge * values, n_frames)

    nearest = near**6  # tells the first shell from the second
    heard = charge
    for _ in range(ROUNDS):
        heard = charge * np.log1p(gathered(nearest, heard))
    pull = np.stack([gathered(near * unit[:, k], charge, -1.0) for k in range(3)])
    squares = np.zeros(n_atoms)
    for a, b in ((0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (2, 0)):
        moment = gathered(near * (unit[:, a] * unit[:, b] - (a == b) / 3.0), charge)
        squares += (1.0 if a == b else 2.0) * moment**2
    return np.stack(
        [total(gathered(near, charge)), total(heard), total(np.linalg.norm(pull, axis=0)),
         total(np.sqrt(squares))], axis=1,
    )  # fmt: skip


def alike(a: np.ndarray, b: np.ndarray, n_atoms: np.ndarray) -> np.ndarray:
    """Which of the fingerprints ``a`` and ``b`` (M, 4) of frames with ``n_atoms`` are the same."""
    difference = np.abs(a - b)
    parts = difference[:, :2] <= SAME * np.maximum(np.abs(a), np.abs(b))[:, :2] + 1e-12
    lengths = difference[:, 2:] <= SAME_LENGTH * n_atoms[:, None] + 1e-4
    return parts.all(1) & lengths.all(1)
