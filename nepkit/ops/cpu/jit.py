"""How the CPU kernels are compiled."""

from __future__ import annotations

import numba

# Sums may be reordered into vector registers; NaN and infinity keep their meaning. Without the
# interpreter lock, ranges of atoms run in threads. Compiled code is kept on disk. With the error
# model of numpy a division needs no branch that raises, which would keep its loop scalar.
RULES = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}
jit = numba.njit(**RULES)
# For what kernels call once an atom or a row: handing over PairData takes a hundred moves.
inlined = numba.njit(forceinline=True, **RULES)
