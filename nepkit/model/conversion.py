"""Between the model that trains and the numbers of a nep.txt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ..config import ModelSettings
from .nep import Nep
from .nep_txt import NepFile

# tanh(20) is 1 to the last bit, in float32 and float64.
SATURATED = 20.0


def trained_settings(settings: ModelSettings) -> ModelSettings:
    """The settings of the network that trains: one neuron of the last layer is set aside.

    It carries each element's own energy in the nep.txt, where NEP4 has only one common bias. With
    one element the bias does it.
    """
    if len(settings.elements) == 1:
        return settings
    return replace(settings, neuron=(*settings.neuron[:-1], settings.neuron[-1] - 1))


def has_energy_neuron(file: NepFile) -> bool:
    """Whether each element has a neuron that sees no input, as the writer's own."""
    constant = ~file.hidden_weight[-1].any(axis=2)  # (T, H)
    return file.settings.neuron[-1] > 1 and bool(constant.any(axis=1).all())


def model_from_file(file: NepFile, *, device, dtype) -> Nep:
    """The model of a nep.txt.

    Neurons that see no input and the common bias become ``element_energy``, in float64, so that
    energies of thousands of eV an atom keep their digits in float32.
    """
    hidden, bias = [w.copy() for w in file.hidden_weight], [b.copy() for b in file.hidden_bias]
    output = file.output_weight.astype(np.float64)
    constant = ~hidden[-1].any(axis=2)  # (T, H)
    energy = np.where(constant, output * np.tanh(-bias[-1]), 0.0).sum(1) - file.output_bias
    output[constant] = 0.0
    settings = file.settings
    if len(settings.elements) > 1 and has_energy_neuron(file):
        # The neuron that the writer puts back.
        keep = np.arange(settings.neuron[-1]) != constant.argmax(axis=1)[:, None]
        hidden[-1] = np.stack([w[k] for w, k in zip(hidden[-1], keep)])
        bias[-1] = np.stack([b[k] for b, k in zip(bias[-1], keep)])
        output = np.stack([w[k] for w, k in zip(output, keep)])
        settings = trained_settings(settings)
    n_types = len(settings.elements)
    model = Nep(settings, torch.arange(n_types**2), device=device, dtype=dtype)
    model.element_energy.copy_(torch.from_numpy(energy))
    model.q_scaler.copy_(torch.from_numpy(file.q_scaler))
    model.file_q_scaler.copy_(model.q_scaler)
    values = {f"hidden_weight_{k}": w for k, w in enumerate(hidden)}
    values |= {f"hidden_bias_{k}": b for k, b in enumerate(bias)}
    values |= {
        "output_weight": output,
        "radial_coefficients": file.radial_coefficients.reshape(n_types**2, *file.radial_coefficients.shape[2:]),
        "angular_coefficients": file.angular_coefficients.reshape(n_types**2, *file.angular_coefficients.shape[2:]),
    }  # fmt: skip
    for name, view in model.views(model.flat).items():
        if name in values:
            view.copy_(torch.from_numpy(np.ascontiguousarray(values[name])))
    return model


def model_to_file(model: Nep, flat: torch.Tensor, max_neighbors: tuple[int, int]) -> NepFile:
    """The nep.txt of ``model`` with the parameters ``flat`` (n_parameters,).

    Undoes ``trained_settings``: where several elements have energies of their own, a saturated
    neuron of each element carries what the common bias cannot.
    """
    values = {k: v.cpu().numpy() for k, v in model.views(flat).items()}
    layers = range(len(model.settings.neuron))
    hidden = [values[f"hidden_weight_{k}"] for k in layers]
    bias = [values[f"hidden_bias_{k}"] for k in layers]
    output, settings = values["output_weight"], model.settings
    # The network sees q times the scaler, whichever of the two carries the factor.
    ratio = model.q_scaler.double() / model.file_q_scaler.double()
    hidden[0] = (hidden[0] * ratio.cpu().numpy()).astype(hidden[0].dtype)
    energy = model.element_energy.cpu().numpy() + values["element_bias"]
    common = energy[0] if len(energy) == 1 else float(np.float32(energy.mean()))
    if len(energy) > 1:
        settings = replace(settings, neuron=(*settings.neuron[:-1], settings.neuron[-1] + 1))
        hidden[-1] = np.pad(hidden[-1], ((0, 0), (0, 1), (0, 0)))
        bias[-1] = np.pad(bias[-1], ((0, 0), (0, 1)), constant_values=SATURATED)
        # tanh(0 - SATURATED) = -1
        output = np.concatenate([output.astype(np.float64), (common - energy)[:, None]], axis=1)
    n_types = len(settings.elements)
    coefficients = []
    for name in ("radial_coefficients", "angular_coefficients"):
        full = np.zeros((n_types**2, *values[name].shape[1:]), values[name].dtype)
        full[model.pair_types.cpu().numpy()] = values[name]
        coefficients.append(full.reshape(n_types, n_types, *full.shape[1:]))
    # Readers refuse a model without room for neighbours.
    max_neighbors = tuple(max(1, most) for most in max_neighbors)
    return NepFile(
        settings, max_neighbors, tuple(hidden), tuple(bias), output, -float(common),
        *coefficients, model.file_q_scaler.cpu().numpy(),
    )  # fmt: skip
