"""Functions as operators of torch, which compilers, traces and graphs know by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.library import Library

_LIBRARY = Library("nepkit", "FRAGMENT")


class Operator:
    """``torch.ops.nepkit.NAME``, which changes none of its arguments.

    Defined by hand: a custom_op imports torch._dynamo when it is called for the first time, which
    takes as long as importing torch, and asks all modules where it stands.
    """

    def __init__(self, name: str, schema: str, function: Callable):
        _LIBRARY.define(f"{name}{schema}", tags=torch.Tag.pt2_compliant_tag)
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        self.name, self.__doc__ = name, function.__doc__
        self._call = getattr(torch.ops.nepkit, name).default

    def __call__(self, *arguments):
        return self._call(*arguments)

    def register_fake(self, function: Callable) -> Callable:
        """Take ``function`` for the shapes of the results, of tensors that hold no numbers."""
        _LIBRARY.impl(self.name, function, "Meta")
        return function


def operator(schema: str) -> Callable[[Callable], Operator]:
    """Make a function the operator of its name, with this ``schema``."""
    return lambda function: Operator(function.__name__, schema, function)
