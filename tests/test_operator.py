"""Operators of torch that are defined by hand."""

import subprocess
import sys

import pytest
import torch
from torch import library

from nepkit.ops.segment import segment_sum


def arguments():
    start = torch.tensor([0, 2, 2, 5], dtype=torch.int32)
    return torch.randn(5, 3), None, start, 4


def test_an_operator_is_what_torch_asks_of_one():
    library.opcheck(torch.ops.nepkit.segment_sum.default, arguments())


def test_derivatives_by_autograd_are_refused():
    values, *others = arguments()
    sums = segment_sum(values.requires_grad_(), *others)
    with pytest.raises(RuntimeError, match="segment_sum has no derivative"):
        sums.sum().backward()


def test_modules_may_be_loaded_anew():
    """By a script of its own, as the operators are those of the whole process."""
    script = (
        "import importlib, sys, torch\n"
        "from nepkit.ops import segment\n"
        "old = segment.segment_sum\n"
        "given = torch.ones(5, 3), None, torch.tensor([0, 2, 5], dtype=torch.int32), 4\n"
        "importlib.reload(segment)\n"
        "assert torch.equal(segment.segment_sum(*given), old(*given))\n"
        "for name in [name for name in sys.modules if name.startswith('nepkit')]:\n"
        "    del sys.modules[name]\n"
        "from nepkit.ops.segment import segment_sum\n"
        "assert torch.equal(segment_sum(*given), old(*given))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_nothing_imports_the_compiler():
    """It takes as long as torch itself."""
    script = (
        "import sys, torch\n"
        "import nepkit.train\n"
        "from nepkit.ops.segment import segment_sum\n"
        "segment_sum(torch.ones(5, 3), None, torch.tensor([0, 2, 5], dtype=torch.int32), 4)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
