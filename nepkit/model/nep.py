"""The NEP4 model: parameters in one flat tensor, and its evaluation on a batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..config import ModelSettings
from ..data.batch import Selection
from ..ops.segment import Segments
from ..ops.stages import stage
from ..ops.terms import terms_of
from .invariants import Invariants
from .network import NetworkWeights


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
        self.terms = terms_of(
            settings.l_max, settings.invariants, self.flat
        )  # the same, for kernels

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views of ``flat`` (n_parameters,)."""
        pieces = flat.split([math.prod(shape) for shape in self.shapes.values()])
        return {name: p.view(s) for (name, s), p in zip(self.shapes.items(), pieces)}

    def part(self, name: str) -> list[slice]:
        """The stretches of the flat tensor that hold the ``descriptor`` or the ``networks``.

        The energy of each element that no environment changes belongs to neither.
        """
        stretches: dict[str, list[slice]] = {"descriptor": [], "networks": [], "element_bias": []}
        first = 0
        for key, shape in self.shapes.items():
            last = first + math.prod(shape)
            kind = "descriptor" if key.endswith("coefficients") else "networks"
            stretches[key if key in stretches else kind].append(slice(first, last))
            first = last
        return stretches[name]

    def in_file(self) -> tuple[Tensor, int]:
        """What each parameter is multiplied by in a nep.txt (n_parameters,), and their number there.

        Energies of elements are left out; pair types without coefficients are in the file too.
        """
        scale = torch.ones_like(self.flat)
        views = self.views(scale)
        views["hidden_weight_0"] *= self.q_scaler / self.file_q_scaler
        views["element_bias"].zero_()
        shapes = parameter_shapes(self.settings, len(self.settings.elements) ** 2)
        count = sum(math.prod(shape) for name, shape in shapes.items() if name != "element_bias")
        return scale, count

    def weights_and_biases(self) -> tuple[slice, slice]:
        """The two stretches of the flat tensor."""
        sizes = {name: math.prod(shape) for name, shape in self.shapes.items()}
        cut = sum(size for name, size in sizes.items() if "bias" not in name)
        return slice(0, cut), slice(cut, sum(sizes.values()))


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
    """One evaluation of a model on frames: energies, forces, and the gradient of a loss.

    ``q`` (N, D) are the descriptors, not scaled; ``atom_energies`` (N,) eV the energies without
    the element energies.
    """

    def __init__(self, model: Nep, selection: Selection, flat: Tensor):
        self.model, self.batch = model, selection
        self.frames = Segments(selection.atom_start, selection.atom_frame, typical=128)
        views = model.views(flat)
        self.radial_coefficients = views["radial_coefficients"]
        self.angular_coefficients = views["angular_coefficients"]
        layers = range(len(model.settings.neuron))
        self.weights = NetworkWeights(
            tuple(views[f"hidden_weight_{k}"] for k in layers),
            tuple(views[f"hidden_bias_{k}"] for k in layers),
            views["output_weight"],
            views["element_bias"],
        )
        self.q, self.atom_energies = self._evaluate()

    def _evaluate(self) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def sums_of_frames(self) -> Tensor:
        """Energies of the frames (B,) eV, without the element energies."""
        return self.frames.sum(self.atom_energies)

    def forces_and_virials(self) -> tuple[Tensor, Tensor]:
        """Forces (N, 3) eV/Å and virials (B, 6) eV, xx yy zz xy yz zx. Comes before gradient."""
        raise NotImplementedError

    def gradient(
        self, energies: Tensor, forces: Tensor, virials: Tensor | None
    ) -> dict[str, Tensor]:
        """Gradient of a loss to the parameters, from those to atom energies, forces, virials.

        ``energies`` (N,), ``forces`` (N, 3), ``virials`` (B, 6) or None. This is the gradient of
        sum_i [dL/dU_i U_i + <dU_i/da, J v>] with a and J v constant: no pair is differentiated.
        """
        with stage("tangent densities"):
            q_dot = self._tangents(forces, virials)
        with stage("parameter gradients"):
            weights, q_bar = self._network_gradient(energies, q_dot)
            radial, angular = self._coefficient_gradients(q_bar)
        gradients = {f"hidden_weight_{k}": w for k, w in enumerate(weights.hidden)}
        gradients |= {f"hidden_bias_{k}": b for k, b in enumerate(weights.bias)}
        gradients |= {"output_weight": weights.output, "element_bias": weights.element}
        return gradients | {"radial_coefficients": radial, "angular_coefficients": angular}

    def gradient_into(self, out: Tensor, energies: Tensor, forces: Tensor, virials: Tensor | None):
        """Write the gradient to ``out`` (n_parameters,), laid out as the model's ``flat``."""
        parts = self.gradient(energies, forces, virials)
        torch.cat([parts[name].flatten() for name in self.model.shapes], out=out)

    def _tangents(self, forces: Tensor, virials: Tensor | None) -> Tensor:
        """Tangent of q (N, D) along J v."""
        raise NotImplementedError

    def _network_gradient(self, energies: Tensor, q_dot: Tensor) -> tuple[NetworkWeights, Tensor]:
        """Gradient of sum_i [energies_i U_i + dU_i/dq . q_dot_i] to the weights and to q (N, D)."""
        raise NotImplementedError

    def _coefficient_gradients(self, q_bar: Tensor) -> tuple[Tensor, Tensor]:
        """The rest of the gradient, to the radial and angular coefficients, from that to q."""
        raise NotImplementedError
