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


def jit(function):
    """Compile ``function`` when it is called, and keep that on disk where some folder can be written."""
    try:
        return numba.njit(**RULES)(function)
    except RuntimeError:  # neither beside the file nor in the user's cache
        return numba.njit(**{**RULES, "cache": False})(function)


# What kernels alone call is not kept by itself, nor made ready for Python's arguments, which are
# hundreds of moves for PairData: a fifth of the time that it takes to compile a step.
_INNER = {**RULES, "cache": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = numba.njit(**_INNER)
# For what kernels call once an atom or a row: there those moves would count each time.
inlined = numba.njit(forceinline=True, **_INNER)
