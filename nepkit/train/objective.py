"""The loss of a batch and its gradient to the parameters: functions that can be compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import torch
from torch import Tensor

from ..data.batch import Batch
from ..model.nep import Evaluation, Nep
from ..model.rows import RowEvaluation
from ..ops.policy import Contract
from ..ops.stages import stage
from ..ops.tables import PAIR_TABLES, pair_tables
from .loss import LossResult, Rules, loss, sums


def loss_of(
    evaluation: Evaluation,
    rules: Rules,
    found: tuple[Tensor, Tensor, Tensor | None],
    totals: Tensor | None = None,
    of: Callable[..., LossResult] = loss,
) -> tuple[LossResult, Tensor]:
    """The loss of an evaluation, and its derivative to the energies of the atoms (N,).

    ``found``: what it has ``predicted``.
    """
    with stage("loss"):
        result = of(evaluation.batch, rules, *found, totals)
        return result, evaluation.frames.spread(result.energy)


def predicted(evaluation: Evaluation, use_virial: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Energies (B,), forces (N, 3) and, where they count, virials (B, 6)."""
    forces, virials = evaluation.forces_and_virials()
    return evaluation.sums_of_frames(), forces, virials if use_virial else None


def analytic(
    model: Nep,
    batch: Batch,
    flat: Tensor,
    rules: Rules,
    use_virial: bool,
    contract: Contract | None = None,
    totals: Tensor | None = None,
) -> tuple[LossResult, Tensor]:
    """The loss with the parameters ``flat`` (n_parameters,) and its gradient (n_parameters,).

    ``totals``: see loss; of the larger batch that this one is a part of.
    """
    evaluation = RowEvaluation(model, batch, flat, contract)
    result, to_atoms = loss_of(evaluation, rules, predicted(evaluation, use_virial), totals)
    parts = evaluation.gradient(to_atoms, result.forces, result.virial)
    return result, torch.cat([parts[name].flatten() for name in model.shapes])


def fused(
    model: Nep,
    batch: Batch,
    flat: Tensor,
    rules: Rules,
    use_virial: bool,
    contract: None = None,
    totals: Tensor | None = None,
) -> tuple[LossResult, Tensor]:
    """The same as ``analytic`` by Triton's kernels."""
    evaluation, of_batch = _fused_loss(model, batch, flat, rules)
    with stage("loss"):
        value, terms, to_atoms, *derivatives = of_batch.derivatives(totals)
    result = LossResult(value, terms, of_batch.parts[:, :3], *derivatives)
    parts = evaluation.gradient(to_atoms, result.forces, result.virial)
    return result, torch.cat([parts[name].flatten() for name in model.shapes])


def fused_error_sums(
    model: Nep, batch: Batch, flat: Tensor, rules: Rules, use_virial: bool, contract: None = None
) -> Tensor:
    """The same as ``error_sums`` by Triton's kernels."""
    return _fused_loss(model, batch, flat, rules)[1].parts.sum(0)


def _fused_loss(model: Nep, batch: Batch, flat: Tensor, rules: Rules):
    from ..model.fused import FusedEvaluation
    from ..ops.triton.loss import BatchLoss

    evaluation = FusedEvaluation(model, batch, flat)
    sums = evaluation.sums_of_atoms()
    with stage("loss"):
        return evaluation, BatchLoss(batch, rules, evaluation.atom_energies, sums)


def error_sums(
    model: Nep, batch: Batch, flat: Tensor, rules: Rules, use_virial: bool, contract: Contract
) -> Tensor:
    """``sums`` of the errors on a batch (6,)."""
    evaluation = RowEvaluation(model, batch, flat, contract)
    return sums(batch, rules, *predicted(evaluation, use_virial))


def autograd(
    model: Nep,
    batch: Batch,
    flat: Tensor,
    rules: Rules,
    use_virial: bool,
    contract: Contract | None = None,
    totals: Tensor | None = None,
) -> tuple[LossResult, Tensor]:
    """The same as ``analytic`` by torch's double backward through the pair vectors."""
    flat = flat.detach().requires_grad_()
    with torch.enable_grad():
        energy, forces, virials = differentiated(model, batch, flat, contract)
        found = (energy, forces, virials if use_virial else None)
        if totals is not None:  # they change as the part of this batch does
            part = sums(batch, rules, *found)
            totals = totals + (part - part.detach())
        with stage("loss"):
            result = loss(batch, rules, *found, totals)
        with stage("parameter gradients"):
            (gradient,) = torch.autograd.grad(result.value, flat)
    values = {field.name: getattr(result, field.name) for field in fields(result)}
    values = {name: None if t is None else t.detach() for name, t in values.items()}
    return LossResult(**values), gradient


def differentiated(
    model: Nep, batch: Batch, flat: Tensor, contract: Contract | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Energies (B,), forces (N, 3) and virials (B, 6) by torch's derivatives to the pair vectors.

    The vectors of angular pairs are leaves of their own: no derivative is scattered.
    """
    vectors = batch.vectors.detach()
    leaves = [vectors, vectors.index_select(0, batch.angular)]
    with torch.enable_grad():
        leaves = [leaf.requires_grad_() for leaf in leaves]
        tables = {name: t for name, t in batch.tables.items() if name not in PAIR_TABLES}
        batch = replace(batch, vectors=leaves[0], tables=tables)
        with stage("densities"):
            tables |= pair_tables(batch, model.settings, flat.dtype, leaves[1])
        evaluation = RowEvaluation(model, replace(batch, tables=tables), flat, contract)
        with stage("pair gradients"):
            pair_forces = torch.autograd.grad(
                evaluation.atom_energies.sum(), leaves, create_graph=True, materialize_grads=True
            )
            pair_forces = [forces.to(flat.dtype) for forces in pair_forces]
        with stage("forces and virials"):
            forces, virials = evaluation.geometry.of_pair_forces(*pair_forces)
    return evaluation.frames.sum(evaluation.atom_energies), forces, virials
