"""Functions as operators of torch, which compilers, traces and graphs know by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import library

# By operator; kept with the operators, which stay when nepkit's modules are loaded anew.
_LIBRARIES: dict[str, library.Library] = torch.ops.nepkit.__dict__.setdefault("libraries", {})


class Operator:
    """``torch.ops.nepkit.NAME``, which changes none of its arguments and has no derivative.

    Defined by hand: a custom_op imports torch._dynamo when it is called for the first time, which
    takes as long as importing torch, and asks all modules where it stands.
    """

    def __init__(self, name: str, schema: str, function: Callable):
        if name in _LIBRARIES:
            _LIBRARIES.pop(name)._destroy()
        place = self.place = _LIBRARIES[name] = library.Library("nepkit", "FRAGMENT")
        place.define(f"{name}{schema}", tags=torch.Tag.pt2_compliant_tag)
        place.impl(name, function, "CompositeExplicitAutograd")
        self.name, self.__doc__ = name, function.__doc__

        def refuse(context, *gradients):
            raise RuntimeError(f"nepkit::{name} has no derivative that autograd could take")

        library.register_autograd(f"nepkit::{name}", refuse, lib=place)

    def __call__(self, *arguments):
        return getattr(torch.ops.nepkit, self.name).default(*arguments)

    def register_fake(self, function: Callable) -> Callable:
        """Take ``function`` for the shapes of the results, of tensors that hold no numbers."""
        self.place.impl(self.name, function, "Meta")
        return function


def operator(schema: str) -> Callable[[Callable], Operator]:
    """Make a function the operator of its name, with this ``schema``."""
    return lambda function: Operator(function.__name__, schema, function)
