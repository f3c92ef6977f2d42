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
from nepkit.ops.policy import FORMS, contraction_form, forced_contraction


def evaluated(name, form):
    """Everything that an evaluation on odd frames gives, and the gradient of a loss."""
    elements, frames = odd_shape(name)
    settings = model_settings(elements, invariants=("q222", "q1111"))
    model = random_model(settings)
    prepared = make_ready(frames, settings)
    generator = torch.Generator().manual_seed(1)
    with forced_contraction(form):
        evaluation = evaluation_of(model, prepared)
        forces, virials = evaluation.forces_and_virials()
        values = (evaluation.atom_energies, forces, virials)
        outer = [torch.randn(v.shape, generator=generator, dtype=v.dtype) for v in values]
        gradient = evaluation.gradient(*outer)
    return dict(zip(("energies", "forces", "virials"), values)) | {"q": evaluation.q} | gradient


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize("name", ODD_SHAPES)
def test_forms_are_equal(name, form):
    wanted, found = evaluated(name, "loop"), evaluated(name, form)
    assert wanted.keys() == found.keys()
    for key, values in wanted.items():
        scale = max(1.0, values.abs().max().item() if values.numel() else 0.0)
        torch.testing.assert_close(found[key], values, rtol=0, atol=1e-10 * scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gathered_coefficients_are_bit_identical(dtype):
    """The one-hot product adds exact zeros."""
    groups = Groups(torch.tensor([3, 0, 0, 2, 3], dtype=torch.int32), 4)
    generator = torch.Generator().manual_seed(0)
    coefficients = torch.randn(4, 2, 3, generator=generator, dtype=torch.float64).to(dtype)
    one, other = (
        Contraction(groups, None, None, form).gather(coefficients) for form in ("bmm", "mulsum")
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("device", "n_types", "form"),
    [("cuda", 1, "mulsum"), ("cuda", 32, "mulsum"), ("cuda", 33, "bmm"), ("cuda", 89, "bmm"),
     ("cpu", 20, "bmm"), ("cpu", 89, "bmm")],
)  # fmt: skip
def test_policy(device, n_types, form):
    assert contraction_form(torch.device(device), n_types) == form


@pytest.mark.parametrize("n_types", [1, 2, 19])
def test_policy_of_few_types_on_a_cpu(n_types):
    assert contraction_form(torch.device("cpu"), n_types) in FORMS


def test_a_form_can_be_forced():
    usual = contraction_form(torch.device("cpu"), 2)
    for form in FORMS:
        with forced_contraction(form):
            assert contraction_form(torch.device("cpu"), 2) == form
            assert contraction_form(torch.device("cuda"), 89) == form
    assert contraction_form(torch.device("cpu"), 2) == usual
    with pytest.raises(ValueError, match="unknown form 'einsum'"), forced_contraction("einsum"):
        pass
    with pytest.raises(RuntimeError, match="stop"), forced_contraction("loop"):
        raise RuntimeError("stop")
    assert contraction_form(torch.device("cpu"), 2) == usual
