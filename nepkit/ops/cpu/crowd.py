"""Threads that meet inside a kernel: one start for what comes in turns.

To start a kernel on another thread, or to wait for its end, takes as long as a turn itself.
"""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

from .jit import inlined

# Looks at the others before the processor is lent to whoever waits for it.
LOOKS = 1000
_lend = types.ExternalFunction("sched_yield", types.int32())


@intrinsic
def _arrive(typing, crowd):
    """Add 1 to the arrivals, crowd[1]; returns what they were."""

    def generate(context, builder, signature, arguments):
        one = context.get_constant(types.int64, 1)
        place = _place(context, builder, signature, arguments)
        return builder.atomic_rmw("add", place, one, "acq_rel")

    return types.int64(crowd), generate


@intrinsic
def _arrivals(typing, crowd):
    """crowd[1] as it is now, and all that was written by those who have arrived."""

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, signature, arguments)
        return builder.load_atomic(place, "acquire", 8)

    return types.int64(crowd), generate


def _place(context, builder, signature, arguments):
    """The address of crowd[1]."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [context.get_constant(types.intp, 1)])


@inlined
def meet(crowd):
    """Wait until all threads are here; ``crowd`` (2,) int64: how many they are, and arrivals."""
    until = (_arrive(crowd) // crowd[0] + 1) * crowd[0]
    looks = 0
    while _arrivals(crowd) < until:
        looks += 1
        if looks > LOOKS:
            _lend()


@inlined
def share(count, part, n_parts):
    """Which of ``count`` things are the ``part``'s of ``n_parts`` threads: first, and before which."""
    return count * part // n_parts, count * (part + 1) // n_parts
