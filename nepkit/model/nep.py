"""The NEP4 model: parameters in one flat tensor, and its evaluation on a batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..config import ModelSettings
from ..data.batch import Batch
from ..ops.geometry import Geometry
from ..ops.groups import Groups
from ..ops.policy import contraction_form
from .contraction import Contraction
from .invariants import Invariants
from .network import Network, NetworkWeights


class Nep:
    """Parameters of a NEP4 model as views of ``flat`` (n_parameters,), and what is fixed.

    ``pair_types`` (G,) are the pair types (centre type * T + neighbour type) that have
    coefficients; a pair type without any does not interact.
    """

    def __init__(self, settings: ModelSettings, pair_types: Tensor, *, device, dtype):
        self.settings, self.pair_types = settings, pair_types.to(device)
        n_types = len(settings.elements)
        self.group_of_pair_type = torch.full((n_types**2,), -1, dtype=torch.int32, device=device)
        self.group_of_pair_type[self.pair_types.long()] = torch.arange(
            len(pair_types), dtype=torch.int32, device=device
        )
        self.shapes = parameter_shapes(settings, len(pair_types))
        size = sum(math.prod(shape) for shape in self.shapes.values())
        self.flat = torch.zeros(size, device=device, dtype=dtype)
        self.q_scaler = torch.ones(settings.descriptor_length, device=device, dtype=dtype)
        # The scaler of the nep.txt: GPUMD's own, which it computes anew where it goes on with a
        # nep.restart. Writing the model moves the ratio of the two into the first weights.
        self.file_q_scaler = torch.ones_like(self.q_scaler)
        # Energy of each element that no environment changes, taken out of the network (T,).
        self.element_energy = torch.zeros(n_types, device=device, dtype=torch.float64)
        self.invariants = Invariants(settings.l_max, settings.invariants, self.flat)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views of ``flat`` (n_parameters,)."""
        pieces = flat.split([math.prod(shape) for shape in self.shapes.values()])
        return {name: p.view(s) for (name, s), p in zip(self.shapes.items(), pieces)}

    def weights_and_biases(self) -> tuple[slice, slice]:
        """The two stretches of the flat tensor."""
        sizes = {name: math.prod(shape) for name, shape in self.shapes.items()}
        cut = sum(size for name, size in sizes.items() if "bias" not in name)
        return slice(0, cut), slice(cut, None)

    def __call__(self, batch: Batch, flat: Tensor | None = None) -> Evaluation:
        """Evaluate ``batch`` with ``flat`` in place of the model's own parameters."""
        return Evaluation(self, batch, self.flat if flat is None else flat)


def parameter_shapes(settings: ModelSettings, n_pair_types: int) -> dict[str, tuple[int, ...]]:
    """Shape of each parameter, in the order of the flat tensor: weights, then biases."""
    n_types, width = len(settings.elements), settings.descriptor_length
    weights: dict[str, tuple[int, ...]] = {}
    biases: dict[str, tuple[int, ...]] = {}
    for layer, neurons in enumerate(settings.neuron):
        weights[f"hidden_weight_{layer}"] = (n_types, neurons, width)
        biases[f"hidden_bias_{layer}"] = (n_types, neurons)
        width = neurons
    weights["output_weight"] = (n_types, width)
    for kind, name in enumerate(("radial", "angular")):
        size = (settings.n_max[kind] + 1, settings.basis_size[kind] + 1)
        weights[f"{name}_coefficients"] = (n_pair_types, *size)
    return weights | biases | {"element_bias": (n_types,)}


class Evaluation:
    """One evaluation of a model on a batch: energies, pair forces, and the loss's gradient."""

    def __init__(self, model: Nep, batch: Batch, flat: Tensor):
        self.model, self.batch = model, batch
        settings = model.settings
        views = model.views(flat)
        self.radial_coefficients = views["radial_coefficients"]
        self.angular_coefficients = views["angular_coefficients"]
        layers = range(len(settings.neuron))
        weights = NetworkWeights(
            tuple(views[f"hidden_weight_{k}"] for k in layers),
            tuple(views[f"hidden_bias_{k}"] for k in layers),
            views["output_weight"],
            views["element_bias"],
        )
        self.geometry = Geometry(batch, settings, flat.dtype)
        group = model.group_of_pair_type.index_select(0, batch.row_pair_type)
        form = contraction_form(flat.device, len(settings.elements))
        self.contraction = Contraction(
            Groups(group, len(model.pair_types)), batch.row_center, batch.row_start, form
        )
        self.network = Network(weights, batch.types)
        self._forward()

    def _forward(self):
        contraction = self.contraction
        radial, self.angular_density = self.geometry.densities()
        self.radial_density = radial[:, :, None]
        self.radial_rows = contraction.gather(self.radial_coefficients)
        self.angular_rows = contraction.gather(self.angular_coefficients)
        radial, self.s = self._sums(self.radial_density, self.angular_density)
        # descriptors q (N, D), not scaled
        self.q = torch.cat([radial.squeeze(2), self.model.invariants.values(self.s)], dim=1)
        energies, slope = self.network.forward(self.q * self.model.q_scaler)
        # energy of each atom (N,) eV, without the element energies
        self.atom_energies = energies
        slope = slope * self.model.q_scaler
        split = self.model.settings.n_max[0] + 1
        self.radial_slope = slope[:, :split, None].contiguous()  # dU/ds
        self.angular_slope = self.model.invariants.pull(self.s, slope[:, split:])
        self.q_slope = slope

    def _sums(self, radial: Tensor, angular: Tensor) -> tuple[Tensor, Tensor]:
        return (
            self.contraction.sums(self.radial_coefficients, self.radial_rows, radial),
            self.contraction.sums(self.angular_coefficients, self.angular_rows, angular),
        )

    def pair_forces(self) -> Tensor:
        """dU/dr_ij (H, 3) eV/Å of every pair."""
        expand = self.contraction.expand
        radial = expand(self.radial_coefficients, self.radial_rows, self.radial_slope)
        angular = expand(self.angular_coefficients, self.angular_rows, self.angular_slope)
        return self.geometry.pair_forces(radial.squeeze(2), angular)

    def gradient(
        self, energies: Tensor, forces: Tensor, virials: Tensor | None
    ) -> dict[str, Tensor]:
        """Gradient of a loss to the parameters, from those to atom energies, forces, virials.

        ``energies`` (N,), ``forces`` (N, 3), ``virials`` (B, 6) or None. This is the gradient of
        sum_i [dL/dU_i U_i + <dU_i/da, J v>] with a and J v constant; no pair is differentiated.
        """
        invariants, contraction = self.model.invariants, self.contraction
        radial_tangent, angular_tangent = self.geometry.tangent_densities(forces, virials)
        radial_tangent = radial_tangent[:, :, None]
        radial_dot, s_dot = self._sums(radial_tangent, angular_tangent)
        q_dot = torch.cat([radial_dot.squeeze(2), invariants.push(self.s, s_dot)], dim=1)
        scaler = self.model.q_scaler
        weights, q_bar = self.network.backward(energies, q_dot * scaler)
        q_bar = q_bar * scaler
        split = self.model.settings.n_max[0] + 1
        s_bar = invariants.pull(self.s, q_bar[:, split:])
        s_bar = s_bar + invariants.pull_push(self.s, s_dot, self.q_slope[:, split:])
        gradients = {f"hidden_weight_{k}": w for k, w in enumerate(weights.hidden)}
        gradients |= {f"hidden_bias_{k}": b for k, b in enumerate(weights.bias)}
        gradients |= {"output_weight": weights.output, "element_bias": weights.element}
        gradients["radial_coefficients"] = contraction.coefficient_gradient(
            [q_bar[:, :split, None], self.radial_slope], [self.radial_density, radial_tangent]
        )
        gradients["angular_coefficients"] = contraction.coefficient_gradient(
            [s_bar, self.angular_slope], [self.angular_density, angular_tangent]
        )
        return gradients
