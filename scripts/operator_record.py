"""What the operators of a training step must move and compute; see kernel_floors.py."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

MARK = "floors/"  # begins the names of operators in a trace
OVERWRITTEN = ("aten::copy_", "aten::fill_", "aten::zero_")  # what these change they do not read


def _rows(a, components: str) -> int:
    """One for each coefficient, row and component."""
    radial, angular = (a[f"{kind}_coefficients"][0].numel() for kind in ("radial", "angular"))
    return len(a["group"]) * (radial + angular * a[components].shape[2])


def _pairs(a, halves: str, near: int, around: int) -> int:
    """Operations on H K_R and on Q K_A L numbers."""
    harmonics = a["harmonics"][:, 0].numel()
    radial = len(a[halves]) * a["radial_slope"].shape[1]
    return near * radial + around * harmonics * a["basis"].shape[2]


# Additions and multiplications of an operator of nepkit, by the names of its arguments.
OPERATIONS = {
    "sums_of_atoms": lambda a: _pairs(a, "first_row", 3, 6),
    "row_sums_of_changes": lambda a: _pairs(a, "change", 3, 5),
    "contracted_rows": lambda a: 2 * _rows(a, "angular"),
    "expanded_rows": lambda a: 2 * _rows(a, "slope"),
    "coefficient_products": lambda a: 4 * len(a["center"]) * (
        a["n_radial"] * a["radial"].shape[1] + a["s_bar"].shape[1] * a["angular"][0].numel()
    ),
    "layer_values": lambda a: 2 * len(a["inputs"]) * a["weight"][0].numel(),
    "layer_rates": lambda a: 2 * len(a["tangents"]) * a["weight"][0].numel(),
    "layer_slopes": lambda a: 2 * len(a["values"]) * a["weight"][0].numel(),
    "layer_bars": lambda a: 2 * len(a["values"]) * a["weight"][0].numel(),
    "layer_gradients": lambda a: 4 * a["bars"].numel() * a["inputs"].shape[1],
}  # fmt: skip


@dataclass
class Operator:
    """What all calls of an operator in a step need and take."""

    calls: float = 0
    bytes: float = 0
    operations: float = 0
    launches: float = 0
    us: float = 0
    floor_us: float = 0
    kernels: dict[str, list[float]] = field(default_factory=dict)  # launches and µs of each


def tensors(tree) -> dict[tuple, int]:
    """Bytes of the tensors of ``tree``, each once; what is broadcast counts as it lies."""
    found = {}
    for t in tree_leaves(tree):
        if isinstance(t, torch.Tensor) and t.numel():
            count = 1
            for size, stride in zip(t.shape, t.stride()):
                count *= size if stride else 1
            found[t.data_ptr(), tuple(t.shape), t.dtype] = count * t.element_size()
    return found


def moved_bytes(func, given: dict, result) -> int:
    """What a call reads and writes at least; nothing where it returns a view alone."""
    changed = [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
    here, there = (
        {
            t.untyped_storage().data_ptr(): t
            for t in tree_leaves(tree)
            if isinstance(t, torch.Tensor)
        }
        for tree in (given, result)
    )
    fresh = [there[place] for place in there.keys() - here.keys()]
    written = tensors(fresh) | tensors([given[name] for name in changed if name in given])
    if not written:
        return 0
    skipped = changed if func._schema.name in OVERWRITTEN else ()
    read = tensors([value for name, value in given.items() if name not in skipped])
    return sum(read.values()) + sum(written.values())


def operations(func, given: dict, args, kwargs, result) -> int:
    """Additions and multiplications of a call, where they are known."""
    space, name = func._schema.name.split("::")
    if space == "nepkit":
        return OPERATIONS[name](given) if name in OPERATIONS else 0
    count = flop_registry.get(func._overloadpacket)
    return count(*args, **kwargs, out_val=result) if count else 0


class Recorder(TorchDispatchMode):
    """While entered, notes what operators need and marks them in the profiler's trace."""

    def __init__(self):
        super().__init__()
        self.operators: defaultdict[str, Operator] = defaultdict(Operator)
        self.inside = False  # an operator, which counts as a whole

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func._schema.name
        if name.startswith("profiler"):
            return func(*args, **kwargs)
        self.inside = True
        with record_function(MARK + name):
            result = func(*args, **kwargs)
        self.inside = False
        given = dict(zip((a.name for a in func._schema.arguments), args)) | kwargs
        numbers = operations(func, given, args, kwargs, result)
        self.note(name, moved_bytes(func, given, result), numbers)
        return result

    def note(self, name: str, n_bytes: int, n_operations: int):
        operator = self.operators[name]
        operator.calls += 1
        operator.bytes += n_bytes
        operator.operations += n_operations


@contextmanager
def triton_noted(recorder: Recorder):
    """Note Triton's kernels that are launched by no operator; each tensor counts once."""
    from triton.runtime.jit import JITFunction

    plain = JITFunction.run

    def run(kernel, *args, **options):
        if recorder.inside:
            return plain(kernel, *args, **options)
        name = f"{kernel.fn.__module__.split('.')[-1]}.{kernel.fn.__name__}"
        recorder.note(name, sum(tensors(args).values()), 0)
        with record_function(MARK + name):
            return plain(kernel, *args, **options)

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = plain
