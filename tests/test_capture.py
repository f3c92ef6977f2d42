"""What the capture of a graph asks for."""

import gc
import weakref

from nepkit.ops.capture import nothing_collected


class Cycle:
    def __init__(self):
        self.myself = self


def test_garbage_waits_until_the_block_ends():
    with nothing_collected():
        seen = weakref.ref(Cycle())
        for _ in range(5_000):  # enough to set off a collection
            Cycle()
        assert seen() is not None and not gc.isenabled()
    assert gc.isenabled()
    gc.collect()
    assert seen() is None


def test_what_was_off_stays_off():
    gc.disable()
    try:
        with nothing_collected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
