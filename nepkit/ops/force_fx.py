"""Functions that differentiate inside, as one graph of plain operators (make_fx).

Compilers and captured graphs take such a graph where they cannot take torch.autograd.
"""

from __future__ import annotations

from collections.abc import Callable

# make_fx needs torch.backends.opt_einsum to be loaded, which not every build of torch does by
# itself: those of torch 2.7 for ROCm do not.
import torch.backends.opt_einsum  # noqa: F401
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx


def materialised(
    function: Callable[..., list[Tensor]], ragged: list[Tensor], others: list[Tensor]
) -> GraphModule:
    """``function(*ragged, *others)`` as a graph; it may call torch.autograd.grad.

    The graph serves ``ragged`` tensors of any length along their first axis; each length here must
    be at least 2, as broadcasting treats 1 apart. All other sizes are those of the arguments, and
    tensors that are no arguments are kept by reference.
    """
    # Not needed by those who never trace, and slow to load.
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        ShapeEnv,
        StatelessSymbolicContext,
    )

    if short := [tuple(values.shape) for values in ragged if len(values) < 2]:
        raise ValueError(f"a tensor of shape {short[0]} is too short to trace with")
    # A constant that the function makes once and keeps must not be made of fake tensors.
    function(*ragged, *others)
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

    def fake(values: Tensor, n_free: int) -> Tensor:
        fixed = [DimDynamic.STATIC] * (values.dim() - n_free)
        # DYNAMIC, unlike make_fx's own choice, takes no two sizes for one because they are equal.
        context = StatelessSymbolicContext([DimDynamic.DYNAMIC] * n_free + fixed)
        return mode.from_tensor(values, symbolic_context=context)

    fakes = [fake(values, 1) for values in ragged] + [fake(values, 0) for values in others]
    graph = make_fx(function, tracing_mode="symbolic")(*fakes)
    if fixed := [size for size in mode.shape_env.replacements.values() if size.is_number]:
        raise RuntimeError(f"the trace holds for one length only, {fixed[0]}: is len() called?")
    # Half of what backward passes compute nobody asked for.
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph
