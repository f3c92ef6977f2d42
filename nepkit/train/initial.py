"""A new model: random parameters, and the q_scaler that makes its descriptors comparable."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..config import ModelSettings
from ..data.prepared import Prepared
from ..data.ragged import chunks
from ..model.evaluate import ATOMS_AT_ONCE
from ..model.evaluator import Evaluator
from ..model.nep import Nep

# Standard deviation of new coefficients. The q_scaler makes the descriptors independent of it: it
# sets how fast coefficients change against their size, as every Adam step has the same length.
# Measured after 2,000 steps on PbTe (test forces, meV/Å): 1.0 41.6, 0.3 37.8.
COEFFICIENT_SPREAD = 0.3
# Atoms whose descriptors say how large the components get.
RANGE_ATOMS = 100_000


def new_model(settings: ModelSettings, sets: list[Prepared], seed: int, *, device, dtype) -> Nep:
    """A model with random parameters for the pair types of ``sets``, the training set first.

    Pair types of the training set get random coefficients; those of other sets alone stay 0, as
    nothing is known of them.
    """
    present = [data.structures.pair_types().to(device) for data in sets]
    model = Nep(settings, torch.unique(torch.cat(present)), device=device, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    trained = torch.isin(model.pair_types, present[0])
    views = model.views(model.flat)
    for name in ("radial_coefficients", "angular_coefficients"):
        values = torch.randn(views[name].shape, generator=generator, dtype=torch.float64)
        views[name].copy_(COEFFICIENT_SPREAD * values.to(device) * trained[:, None, None])
    ones = torch.zeros_like(model.flat)
    for name in ("radial_coefficients", "angular_coefficients"):
        model.views(ones)[name].fill_(1.0)
    model.file_q_scaler.copy_(scaler(*descriptor_range(model, sets[0], ones)))
    low, high = descriptor_range(model, sets[0], model.flat)
    model.q_scaler.copy_(scaler(low, high))
    center = 0.5 * (low + high) * model.q_scaler
    for layer, neurons in enumerate(settings.neuron):
        weight = views[f"hidden_weight_{layer}"]
        values = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        weight.copy_(values / math.sqrt(weight.shape[2]))
        bias = views[f"hidden_bias_{layer}"]
        values = 0.5 * torch.randn(bias.shape, generator=generator, dtype=torch.float64)
        bias.copy_(values)
        if layer == 0:
            # Neurons start in the middle of the range that their inputs take.
            bias += weight @ center
    values = torch.randn(views["output_weight"].shape, generator=generator, dtype=torch.float64)
    views["output_weight"].copy_(values / math.sqrt(settings.neuron[-1]) * 0.1)
    return model


def descriptor_range(model: Nep, data: Prepared, flat: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest value of each descriptor component (D,) over the atoms, with ``flat``.

    Of large data, over frames from all of them that have some RANGE_ATOMS together.
    """
    step = math.ceil(data.n_atoms.sum() / RANGE_ATOMS)
    members = np.arange(0, len(data), step)
    evaluate = Evaluator(model, data.structures)
    low = high = None
    for start, stop in chunks(data.n_atoms[members], ATOMS_AT_ONCE):
        frames = torch.as_tensor(members[start:stop], device=data.structures.device)
        smallest, largest = torch.aminmax(evaluate(frames, flat).q, dim=0)
        low = smallest if low is None else torch.minimum(low, smallest)
        high = largest if high is None else torch.maximum(high, largest)
    return low, high


def scaler(low: Tensor, high: Tensor) -> Tensor:
    """1 / (high - low); 1 for a component that is the same everywhere."""
    spread = high - low
    negligible = spread <= 1e-6 * torch.maximum(low.abs(), high.abs())
    return torch.where(negligible, torch.ones_like(spread), 1.0 / spread)
