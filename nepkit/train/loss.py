"""The loss of a batch and its derivatives to energies, forces and virials.

GPUMD's weights: frames by weight^2, energies also by energy_weight, forces by type_weight^2 and
force_delta / (force_delta + |F|), shear virials by lambda_shear^2. ``mse`` adds lambda-weighted mean
squares, ``rmse`` (GPUMD's own) their square roots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..config import Stage
from ..data.batch import Selection
from ..data.known import Labels
from ..model.nep import Nep


class Rules(NamedTuple):
    """What a stage says of the loss, as numbers on the device: they may change between stages."""

    form: str  # mse or rmse
    factors: Tensor  # (3,) lambda_e, lambda_f, lambda_v
    virial: Tensor  # (6,) weights of the components
    types: Tensor  # (T,) weights of the forces on an element
    force_delta: Tensor  # () eV/Å


def rules_of(stage: Stage, n_types: int, like: Tensor) -> Rules:
    """The rules of ``stage`` for a model with ``n_types`` elements."""
    return Rules(
        stage.loss_form,
        like.new_tensor([stage.lambda_e, stage.lambda_f, stage.lambda_v]),
        like.new_tensor([1.0] * 3 + [stage.lambda_shear**2] * 3),
        like.new_tensor(stage.type_weight or [1.0] * n_types).square(),
        like.new_tensor(stage.force_delta),
    )


@dataclass(frozen=True, eq=False, slots=True)
class LossResult:
    """The loss and its derivatives."""

    value: Tensor  # ()
    terms: Tensor  # (3,) weighted mean squares: (eV/atom)^2, (eV/Å)^2, (eV/atom)^2
    squares: Tensor  # (S, 3) weighted squares of the batch itself, in S parts that add up
    energy: Tensor  # (B,) dL/dE
    forces: Tensor  # (N, 3) dL/dF
    virial: Tensor | None  # (B, 6) dL/dW; None without virial labels


def loss(
    batch: Selection,
    rules: Rules,
    energy: Tensor,
    forces: Tensor,
    virial: Tensor | None,
    totals: Tensor | None = None,
) -> LossResult:
    """The loss of predicted energies (B,), forces (N, 3) and virials (B, 6) against the targets.

    Means run over the energies, force components and virial components that have labels.
    ``totals``: ``sums`` over a larger batch that this is a part of; the derivatives are those of
    its loss, and so are the value and the terms. Derivatives of the mse form need its numbers of
    labels alone.
    """
    errors = _errors(batch, rules, energy, forces, virial)
    own = _sums(batch, errors)
    totals = own if totals is None else totals
    value, terms = loss_value(totals, rules)
    slopes = 2.0 * rules.factors / totals[3:].clamp_min(1.0)
    if rules.form == "rmse":
        # d sqrt(x) = dx / (2 sqrt(x)); at x = 0 every error is 0 and so is the derivative.
        slopes = slopes / (2.0 * terms.sqrt().clamp_min(torch.finfo(terms.dtype).tiny))
    derivatives = [slope * (weight * error) for slope, (error, weight) in zip(slopes, errors)]
    if virial is None:
        derivatives.append(None)
    return LossResult(value, terms, own[None, :3], *derivatives)


def loss_by_kernel(
    batch: Selection,
    rules: Rules,
    energy: Tensor,
    forces: Tensor,
    virial: Tensor | None,
    totals: Tensor | None = None,
) -> LossResult:
    """The same as ``loss`` on CPUs, by one kernel."""
    from ..ops.cpu import loss as kernel
    from ..ops.cpu.threads import arrays

    form, *numbers = rules
    factors = kernel.Factors(form == "rmse", *arrays(numbers[:-1]), *arrays([numbers[-1].view(1)]))
    targets = kernel.Targets(*arrays(batch.tables[name] for name in kernel.Targets._fields))
    none = energy[:0]
    found = [energy, forces, none.view(0, 6) if virial is None else virial]
    bars = [torch.empty_like(values) for values in found]
    results, totals = energy.new_empty(10), none if totals is None else totals
    kernel.loss(factors, targets, *arrays([batch.types, *found, totals, results, *bars]))
    value, terms, own = results[0], results[1:4], results[None, 4:7]
    return LossResult(value, terms, own, *bars[:2], None if virial is None else bars[2])


def loss_value(totals: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """The loss () and its terms (3,), weighted mean squares, from ``sums`` of errors."""
    terms = totals[:3] / totals[3:].clamp_min(1.0)
    return (rules.factors * (terms.sqrt() if rules.form == "rmse" else terms)).sum(), terms


def sums(
    batch: Selection, rules: Rules, energy: Tensor, forces: Tensor, virial: Tensor | None
) -> Tensor:
    """Weighted squares of the errors and numbers of labels, each of energies, forces, virials (6,).

    Sums of parts of a batch add up to those of the batch.
    """
    return _sums(batch, _errors(batch, rules, energy, forces, virial))


def _sums(batch: Selection, errors: list[tuple[Tensor, Tensor]]) -> Tensor:
    squares = [(weight * error * error).sum() for error, weight in errors]
    tables = batch.tables
    counts = [_count(tables["energy_weight"]), 3.0 * _count(tables["force_weight"])]
    if len(errors) == 2:  # no virials
        none = torch.zeros_like(squares[0])
        return torch.stack([*squares, none, *counts, none])
    return torch.stack([*squares, *counts, 6.0 * _count(tables["virial_weight"])])


def label_counts(labels: Labels) -> np.ndarray:
    """Numbers of energies, force components and virial components that count, by frame (F, 3)."""
    energy = np.isfinite(labels.energy) & (labels.energy_weight > 0)
    forces = np.isfinite(labels.forces[labels.first_atom[:-1], 0]) * labels.n_atoms
    return np.stack([energy, 3 * forces, 6 * np.isfinite(labels.virial[:, 0])], 1)


def _count(weights: Tensor) -> Tensor:
    """Labels with a weight."""
    return (weights > 0).sum(dtype=weights.dtype)


def _errors(
    batch: Selection, rules: Rules, energy: Tensor, forces: Tensor, virial: Tensor | None
) -> list[tuple[Tensor, Tensor]]:
    """Errors and weights of energies, forces and virials."""
    tables = batch.tables
    weights = tables["force_weight"] * rules.types.index_select(0, batch.types)
    delta = rules.force_delta
    # Without force_delta 0 / 0 where a force is 0.
    damping = torch.where(delta > 0, delta / (delta + tables["force_norm"]), 1.0)
    found = [
        (energy - tables["energy"], tables["energy_weight"]),
        (forces - tables["forces"], (weights * damping)[:, None]),
    ]
    if virial is not None:
        weight = tables["virial_weight"][:, None] * rules.virial
        found.append((virial - tables["virial"], weight))
    return found


def regularisation(model: Nep, flat: Tensor, stage: Stage) -> tuple[Tensor, Tensor, Tensor]:
    """GPUMD's L1 = lambda_1 mean|z|, L2 = lambda_2 sqrt(mean z^2), and their gradient to ``flat``.

    z are the numbers of the nep.txt that ``flat`` (n_parameters,) makes, its energies apart.
    """
    scale, count = model.in_file()
    z = scale * flat
    root = (z.square().sum() / count).sqrt()
    l1, l2 = stage.lambda_1 * z.abs().sum() / count, stage.lambda_2 * root
    tiny = torch.finfo(root.dtype).tiny
    slope = stage.lambda_1 * z.sign() + stage.lambda_2 * z / root.clamp_min(tiny)
    return l1, l2, scale * slope / count
