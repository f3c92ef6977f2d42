"""The three forms of the contraction are equal, and the policy that picks one."""

import pytest
import torch
from structures import (
    ODD_SHAPES,
    evaluation_of,
    make_ready,
    model_settings,
    odd_shape,
    random_model,
)

from nepkit.model.contraction import Contraction
from nepkit.ops.groups import Groups
from nepkit.ops.policy import FORMS, Contract, contraction_policy, forced_contraction


def evaluated(name, form, one_hot=False):
    """Everything that an evaluation on odd frames gives, and the gradient of a loss."""
    elements, frames = odd_shape(name)
    settings = model_settings(elements, invariants=("q222", "q1111"))
    model = random_model(settings)
    prepared = make_ready(frames, settings)
    generator = torch.Generator().manual_seed(1)
    with forced_contraction(form, one_hot):
        evaluation = evaluation_of(model, prepared)
        forces, virials = evaluation.forces_and_virials()
        values = (evaluation.atom_energies, forces, virials)
        outer = [torch.randn(v.shape, generator=generator, dtype=v.dtype) for v in values]
        gradient = evaluation.gradient(*outer)
    return dict(zip(("energies", "forces", "virials"), values)) | {"q": evaluation.q} | gradient


HOW = [("bmm", False), ("bmm", True), ("mulsum", False), ("mulsum", True)]


@pytest.mark.parametrize(("form", "one_hot"), HOW)
@pytest.mark.parametrize("name", ODD_SHAPES)
def test_forms_are_equal(name, form, one_hot):
    wanted, found = evaluated(name, "loop"), evaluated(name, form, one_hot)
    assert wanted.keys() == found.keys()
    for key, values in wanted.items():
        scale = max(1.0, values.abs().max().item() if values.numel() else 0.0)
        torch.testing.assert_close(found[key], values, rtol=0, atol=1e-10 * scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gathered_coefficients_are_bit_identical(dtype):
    """The one-hot product adds exact zeros."""
    groups = Groups(torch.tensor([3, 0, 0, 2, 3], dtype=torch.int32), 5)
    generator = torch.Generator().manual_seed(0)
    shapes = (4, 2, 3), (4, 3, 5)
    coefficients = [
        torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes
    ]
    found = [
        Contraction(groups, None, Contract("mulsum", one_hot)).gather(coefficients)
        for one_hot in (True, False)
    ]
    for one, other, shape in zip(*found, shapes):
        assert one.shape == (5, *shape[1:])
        assert torch.equal(one, other)


TYPE_COUNTS = (1, 2, 4, 8, 16, 20, 32, 33, 64, 87, 89)


@pytest.mark.parametrize("n_types", TYPE_COUNTS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("device", ["cpu", "mps", "cuda", "rocm"])
def test_policy(device, compiled, n_types, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4" if device == "rocm" else None)
    few, on_gpu = n_types <= 32, device in ("cuda", "rocm")
    found = contraction_policy("cuda" if on_gpu else device, compiled, n_types)
    assert found.form == ("mulsum" if compiled or (on_gpu and few) else "bmm")
    assert found.one_hot == (device == "rocm" or (device == "cuda" and few))


def test_a_form_can_be_forced():
    usual = contraction_policy("cpu", False, 2)
    for form in FORMS:
        with forced_contraction(form, one_hot=True):
            assert contraction_policy("cpu", False, 2) == (form, True)
            assert contraction_policy("cuda", True, 89) == (form, True)
    assert contraction_policy("cpu", False, 2) == usual
    with pytest.raises(ValueError, match="unknown form 'einsum'"), forced_contraction("einsum"):
        pass
    with pytest.raises(RuntimeError, match="stop"), forced_contraction("loop"):
        raise RuntimeError("stop")
    assert contraction_policy("cpu", False, 2) == usual
