"""The constants of a model as the kernels on CPUs read them."""

from __future__ import annotations

import numpy as np

from ..data.neighbors import pair_cutoffs
from ..model.nep import Nep
from ..model.zbl import repulsion_tables
from ..ops.cpu.launch import arrays, invariant_arrays
from ..ops.cpu.records import Field, Repulsion
from ..ops.harmonics import component_table


def constants(model: Nep) -> Field:
    """The numbers of ``model``, with coefficients for every pair type, as the kernels read them."""
    settings, views, like = model.settings, model.views(model.flat), model.flat
    layers = range(len(settings.neuron))
    radial, angular = (
        pair_cutoffs(cutoff).ravel() for cutoff in (settings.radial_cutoff, settings.angular_cutoff)
    )
    height, around = component_table(settings.l_max)
    place = np.abs(around).argmax(1)  # one number a component at most is not 0
    factor = np.take_along_axis(around, place[:, None], 1)[1:, 0]
    dtype = like.numpy().dtype
    return Field(
        model.element_energy.numpy() + views["element_bias"].double().numpy(),
        radial, angular, radial**2, np.minimum(radial, angular) ** 2,
        views["radial_coefficients"].numpy(),
        np.ascontiguousarray(views["angular_coefficients"].transpose(1, 2).flatten(1).numpy()),
        model.q_scaler.numpy(),
        arrays(views[f"hidden_weight_{k}"] for k in layers),
        arrays(views[f"hidden_bias_{k}"] for k in layers),
        views["output_weight"].numpy(),
        height.astype(dtype), place, factor.astype(dtype),
        **{name: values.numpy() for name, values in invariant_arrays(settings, like).items()},
    )  # fmt: skip


def repulsion(model: Nep) -> Repulsion:
    """ZBL of all pair types, nothing where the model has none."""
    if model.settings.zbl is None:
        none = np.zeros(0)
        return Repulsion(none, none, none, none, np.zeros((0, 8)))
    return Repulsion(*repulsion_tables(model.settings))
