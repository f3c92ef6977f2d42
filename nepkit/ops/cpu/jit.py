"""How the CPU kernels are compiled."""

from __future__ import annotations

import numba

# Sums may be reordered into vector registers; NaN and infinity keep their meaning. Without the
# interpreter lock, ranges of atoms run in threads. Compiled code is kept on disk.
jit = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "arcp", "nsz"})
