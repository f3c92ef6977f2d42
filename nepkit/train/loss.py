"""The loss of a batch and its derivatives to energies, forces and virials.

GPUMD's weights: frames by weight^2, energies also by energy_weight, forces by type_weight^2 and
force_delta / (force_delta + |F|), shear virials by lambda_shear^2. ``mse`` adds lambda-weighted mean
squares, ``rmse`` (GPUMD's own) their square roots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import Stage
from ..data.batch import Batch


@dataclass(frozen=True, eq=False, slots=True)
class LossResult:
    """The loss and its derivatives."""

    value: Tensor  # ()
    terms: Tensor  # (3,) weighted mean squares: (eV/atom)^2, (eV/Å)^2, (eV/atom)^2
    energy: Tensor  # (B,) dL/dE
    forces: Tensor  # (N, 3) dL/dF
    virial: Tensor | None  # (B, 6) dL/dW; None without virial labels


def loss(
    batch: Batch, stage: Stage, energy: Tensor, forces: Tensor, virial: Tensor | None
) -> LossResult:
    """The loss of predicted energies (B,), forces (N, 3) and virials (B, 6) against the targets.

    Means run over the energies, force components and virial components that have labels.
    """
    tables = batch.tables
    errors = [energy - tables["energy"], forces - tables["forces"]]
    weights = [tables["energy_weight"], _force_weights(batch, stage)[:, None].expand(-1, 3)]
    counts = [_count(tables["energy_weight"]), 3 * _count(tables["force_weight"])]
    factors = [stage.lambda_e, stage.lambda_f]
    if virial is not None:
        errors.append(virial - tables["virial"])
        shear = virial.new_tensor([1.0] * 3 + [stage.lambda_shear**2] * 3)
        weights.append(tables["virial_weight"][:, None] * shear)
        counts.append(6 * _count(tables["virial_weight"]))
        factors.append(stage.lambda_v)
    value, terms, derivatives = 0.0, [], []
    for error, weight, count, factor in zip(errors, weights, counts, factors):
        weighted = weight * error
        mean_square = (weighted * error).sum() / count
        slope = factor / count * 2.0
        if stage.loss_form == "rmse":
            root = mean_square.sqrt()
            value = value + factor * root
            # d sqrt(x) = dx / (2 sqrt(x)); at x = 0 every error is 0 and so is the derivative.
            slope = slope / (2.0 * root.clamp_min(torch.finfo(root.dtype).tiny))
        else:
            value = value + factor * mean_square
        terms.append(mean_square)
        derivatives.append(slope * weighted)
    if virial is None:
        terms.append(torch.zeros_like(terms[0]))
        derivatives.append(None)
    return LossResult(value, torch.stack(terms), *derivatives)


def _count(weights: Tensor) -> Tensor:
    """Labels with a weight, at least 1."""
    return (weights > 0).sum(dtype=weights.dtype).clamp_min(1)


def _force_weights(batch: Batch, stage: Stage) -> Tensor:
    weights = batch.tables["force_weight"]
    if stage.type_weight:
        by_type = weights.new_tensor(stage.type_weight).square()
        weights = weights * by_type.index_select(0, batch.types)
    if stage.force_delta > 0:
        weights = weights * (stage.force_delta / (stage.force_delta + batch.tables["force_norm"]))
    return weights


def regularisation(flat: Tensor, stage: Stage) -> tuple[Tensor, Tensor, Tensor]:
    """GPUMD's L1 = lambda_1 mean|z|, L2 = lambda_2 sqrt(mean z^2), and their gradient to z."""
    root = flat.square().mean().sqrt()
    l1, l2 = stage.lambda_1 * flat.abs().mean(), stage.lambda_2 * root
    tiny = torch.finfo(root.dtype).tiny
    gradient = (stage.lambda_1 * flat.sign() + stage.lambda_2 * flat / root.clamp_min(tiny)) / len(
        flat
    )
    return l1, l2, gradient
