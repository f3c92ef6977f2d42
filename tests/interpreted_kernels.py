"""Triton's kernels, run by its interpreter on CPU tensors, against plain torch.

Needs TRITON_INTERPRET=1 before triton is imported: test_interpreter.py runs this file.
"""

import numpy as np
import pytest
import torch
from structures import (
    ODD_SHAPES,
    all_in_one,
    make_ready,
    model_settings,
    odd_frames,
    odd_shape,
    random_model,
    zbl_forms,
)
from test_engine import STAGES, labelled

from nepkit.calculator.device import DeviceField
from nepkit.config import HIGHER_INVARIANTS, Stage
from nepkit.data.buckets import Ladder
from nepkit.data.feed import of_tensors, tensors
from nepkit.model.evaluator import attach_constants
from nepkit.model.fused import FusedEvaluation
from nepkit.model.invariants import Invariants
from nepkit.model.rows import RowEvaluation
from nepkit.ops import (
    gather,
    invariants,
    layers,
    listed,
    moving,
    pairs,
    products,
    repulsion,
    segment,
)
from nepkit.ops.geometry import Geometry
from nepkit.ops.groups import TiledGroups, tiles_of_groups
from nepkit.ops.policy import on_reference_path, reference_path
from nepkit.ops.segment import Segments
from nepkit.ops.tables import PAIR_TABLES
from nepkit.ops.terms import terms_of
from nepkit.ops.triton.assembly import Assembly
from nepkit.ops.triton.loss import BatchLoss
from nepkit.train import shared as shared_base
from nepkit.train.gpu_update import GpuUpdate
from nepkit.train.initial import new_model
from nepkit.train.loss import loss, rules_of
from nepkit.train.loss import sums as error_sums
from nepkit.train.objective import analytic, fused
from nepkit.train.parametrisation import Anchored, Plain
from nepkit.train.shared import MANY
from nepkit.train.step import Step
from nepkit.units import ELEMENTS

EVERY = tuple(HIGHER_INVARIANTS)
FULL = {"invariants": EVERY, "neuron": (5, 3)}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}
dtypes = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """Kernels wherever the block is not on the reference path."""
    modules = (
        shared_base,
        gather,
        invariants,
        layers,
        listed,
        moving,
        pairs,
        products,
        repulsion,
        segment,
    )
    for module in modules:
        monkeypatch.setattr(module, "kernels_on", lambda device: not on_reference_path())


def both(operator, *arguments):
    """What the kernels of ``operator`` give and what plain torch does, as lists."""
    found = operator(*arguments)
    with reference_path():
        wanted = operator(*arguments)
    return [[values] if isinstance(values, torch.Tensor) else values for values in (found, wanted)]


def agree(found, wanted, condition=1.0):
    """Equal but for rounding, which the problem makes ``condition`` times as large."""
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        tolerance = condition * TOLERANCE[one.dtype]
        scale = max(1.0, other.abs().max().item()) if other.numel() else 1.0
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * scale)


def random(dtype, *shape):
    return torch.randn(shape, dtype=torch.float64).to(dtype)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@dtypes
@pytest.mark.parametrize("n_components", [3, 24, 80])
def test_products_of_rows(n_components, dtype):
    """With atoms without rows, rows without coefficients, and ghosts."""
    n_atoms, n_r, k_r, n_a, k_a, n_groups = 7, 2, 5, 3, 4, 3
    counts = torch.tensor([0, 2, 3, 0, 1, 20, 0])
    row_start = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
    center = torch.repeat_interleave(torch.arange(n_atoms), counts)
    center = torch.cat([center, torch.full((3,), n_atoms - 1)]).int()
    group = torch.randint(-1, n_groups, center.shape).int()
    n_rows = len(group)
    densities = [
        [random(dtype, n_rows, k_r), random(dtype, n_rows, k_a, n_components)] for _ in range(2)
    ]
    coefficients = random(dtype, n_groups, n_r, k_r), random(dtype, n_groups, n_a, k_a)
    agree(*both(products.contracted_rows, *densities[0], *coefficients, group, row_start))
    slopes = [[random(dtype, n_atoms, n_r + 4), random(dtype, n_atoms, n_a, n_components)]
              for _ in range(2)]  # fmt: skip
    agree(*both(products.expanded_rows, *slopes[0], *coefficients, group, center))
    groups = TiledGroups(group, n_groups, products.ROW_TILE)
    parts = both(
        products.coefficient_products, *slopes[0], *slopes[1], *densities[0], *densities[1],
        center, groups.member, n_r,
    )  # fmt: skip
    agree(*([groups.tiles.sum(part) for part in way] for way in parts))


@dtypes
@pytest.mark.parametrize(
    ("l_max", "higher"), [(1, ()), (1, ("q1111",)), (4, ("q222",)), (4, EVERY), (8, EVERY)]
)
def test_invariants(l_max, higher, dtype):
    """The kernels and the tables against model/invariants.py."""
    n_components, n_atoms, n, n_radial = (l_max + 1) ** 2 - 1, 9, 2, 5
    near, near_dot = random(dtype, n_atoms, n_radial), random(dtype, n_atoms, n_radial)
    s, s_dot = random(dtype, n_atoms, n, n_components), random(dtype, n_atoms, n, n_components)
    terms, defined = terms_of(l_max, higher, s), Invariants(l_max, higher, s)
    values = terms.factors, terms.coefficients, terms.quartic
    slopes = terms.slope_factors, terms.slope_coefficients, terms.quartic, n_radial
    q = torch.cat([near, defined.values(s)], dim=1)
    q_dot = torch.cat([near_dot, defined.push(s, s_dot)], dim=1)
    bar, slope = random(dtype, *q.shape), random(dtype, *q.shape)
    pulled = defined.pull(s, bar[:, n_radial:])
    second = pulled + defined.pull_push(s, s_dot, slope[:, n_radial:])
    for operator, arguments, wanted in (
        (invariants.descriptors, (near, s, *values), q),
        (invariants.descriptor_changes, (near_dot, s, s_dot, q, *values), q_dot),
        (invariants.sum_slopes, (bar, q, s, *slopes), pulled),
        (invariants.sum_gradients, (bar, slope, q, q_dot, s, s_dot, *slopes), second),
    ):
        for found in both(operator, *arguments):
            agree(found, [wanted])


@pytest.mark.parametrize("tile", [1, 16])
@pytest.mark.parametrize(
    ("n_members", "n_groups"), [(0, 3), (0, 0), (1, 1), (40, 1), (1100, 2), (700, 33), (90, 600)]
)
def test_tiles_of_groups(n_members, n_groups, tile):
    """Each member of a group once, in the order of members, in tiles of the group."""
    generator = torch.Generator().manual_seed(n_members)
    group = torch.randint(-1, max(n_groups, 1), (n_members,), generator=generator).int()
    (start, owner, member), wanted = both(tiles_of_groups, group, n_groups, tile)
    for found, other in zip((start, owner, member), wanted):
        assert found.dtype == torch.int32 and torch.equal(found, other)
    assert len(owner) == n_members // tile + n_groups
    for g in range(n_groups):
        slots = member[tile * start[g] : tile * start[g + 1]]
        assert (owner[start[g] : start[g + 1]] == g).all()
        of_group = (group == g).nonzero().flatten()
        assert torch.equal(slots[: len(of_group)].long(), of_group)
        assert (slots[len(of_group) :] == n_members).all()
    assert (member[tile * start[n_groups] :] == n_members).all()


@dtypes
@pytest.mark.parametrize(
    ("n_inputs", "n_neurons", "n_types", "n_atoms"),
    [(35, 18, 2, 20), (5, 40, 1, 1), (33, 3, 5, 40)],
)
def test_layers(n_inputs, n_neurons, n_types, n_atoms, dtype):
    groups = TiledGroups(torch.randint(0, n_types, (n_atoms,)).int(), n_types, layers.ATOM_TILE)
    where = groups.member, groups.tiles.owner
    inputs, tangents = random(dtype, n_atoms, n_inputs), random(dtype, n_atoms, n_inputs)
    weight, bias = random(dtype, n_types, n_neurons, n_inputs), random(dtype, n_types, n_neurons)
    values = random(dtype, n_atoms, n_neurons).tanh()
    rates, slope, bar = (random(dtype, n_atoms, n_neurons) for _ in range(3))
    output, element = random(dtype, n_types, n_neurons), random(dtype, n_types)
    energy_bar = random(dtype, n_atoms)
    for scale in (1e-3, 1.0, 100.0):  # the series of tanh, and where it saturates
        inputs_and_weights = scale * inputs, weight, scale * bias
        agree(*both(layers.layer_values, *inputs_and_weights, *where), condition=max(1.0, scale))
    agree(*both(layers.layer_rates, tangents, weight, values, *where))
    for of_value, to_value, last in ((output, energy_bar, True), (slope, bar, False)):
        agree(*both(layers.layer_slopes, values, of_value, element, weight, *where, last))
        agree(*both(layers.layer_bars, values, rates, of_value, to_value, weight, *where, last))
    for of_output in ((energy_bar, values, rates), (None, None, None)):
        parts = both(
            layers.layer_gradients, bar, inputs, slope, tangents, where[0], *of_output
        )  # fmt: skip
        agree(*([groups.tiles.sum(part) for part in way] for way in parts))


@dtypes
def test_tanh_is_accurate_relative_to_itself(dtype):
    """Also where it is small: dU/dq of weak weights is as good as that of strong ones."""
    x = torch.logspace(-12, 2, 300, dtype=dtype)
    one = torch.ones(1, 1, 1, dtype=dtype)
    groups = TiledGroups(torch.zeros(600, dtype=torch.int32), 1, layers.ATOM_TILE)
    inputs = torch.cat([x, -x])[:, None]
    found = layers.layer_values(inputs, one, 0 * one[0], groups.member, groups.tiles.owner)
    error = (found.double() / inputs.double().tanh() - 1).abs().max()
    assert error < 8 * torch.finfo(dtype).eps


@dtypes
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("width", "typical"), [(1, 128), (9, 32), (70, 4), (300, 1)])
def test_sums_of_segments(width, typical, ordered, dtype):
    counts = torch.tensor([0, 3, 0, 40, 1, 0])
    start = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
    values = random(dtype, 50, width)
    order = torch.randperm(50).int() if ordered else None
    agree(*both(segment.segment_sum, values, order, start, typical))


@dtypes
@pytest.mark.parametrize("l_max", [1, 4, 8])
def test_sums_over_pairs(l_max, dtype):
    """J^T and J v, on frames with and without angular pairs, with ghosts after them."""
    frames = [odd_frames()[kind] for kind in ("molecule", "isolated", "dimer", "one atom")]
    settings = model_settings(l_max=l_max)
    prepared = make_ready(frames, settings, dtype)
    batch = Ladder(prepared.structures).batch(np.arange(len(prepared)))
    geometry, n_rows = Geometry(batch, settings, dtype), len(batch.row_center)
    radial, angular = random(dtype, n_rows, 5), random(dtype, n_rows, 4, (l_max + 1) ** 2 - 1)
    agree(*both(geometry.forces_and_virials, radial, angular))
    forces, virials = random(dtype, len(batch.types), 3), random(dtype, len(batch), 6)
    agree(*both(geometry.tangent_densities, forces, virials))
    agree(*both(geometry.tangent_densities, forces, None))
    agree(*both(geometry.densities))


def everything(kind, model, batch):
    """All that an evaluation gives, the gradient of a random loss by name after it."""
    evaluation = kind(model, batch, model.flat)
    values = [evaluation.atom_energies, *evaluation.forces_and_virials()]
    torch.manual_seed(1)
    gradient = evaluation.gradient(*(random(model.flat.dtype, *v.shape) for v in values))
    return [evaluation.q, *values, *(gradient[name] for name in model.shapes)]


# Eight thousand pair types take the interpreter minutes, and every atom its time.
SHAPES = {name: shape for name, shape in ODD_SHAPES.items() if name != "89 types"}
LIKE_OTHERS = "bulk", "left-handed", "outside", "slab along a"
SHAPES["all kinds"] = (
    SHAPES["all kinds"][0],
    tuple(kind for kind in odd_frames() if kind not in LIKE_OTHERS),
)
EVERY_KIND = ODD_SHAPES["all kinds"]
SHAPES["7 types"] = ELEMENTS[:7], ("molecule", "two atoms", "isolated")
# Names of shapes, changes to the model, whether the batch ends in ghosts, and precision.
CASES = [
    *((name, {}, False, torch.float64) for name in SHAPES if name != "all kinds"),
    *((name, FULL, True, torch.float64) for name in SHAPES),
    ("many images", {"l_max": 1, "invariants": ("q1111",)}, True, torch.float64),
    ("one atom", {"l_max": 8, "invariants": EVERY}, True, torch.float64),
    ("one type", {}, True, torch.float32),
    ("no angular pairs", FULL, True, torch.float32),
    pytest.param("every kind", FULL, True, torch.float64, marks=pytest.mark.slow),
]


def shape(name):
    """Elements and frames of one of SHAPES."""
    elements, kinds = EVERY_KIND if name == "every kind" else SHAPES[name]
    return elements, [odd_frames(elements)[kind] for kind in kinds]


@pytest.mark.parametrize(("name", "changes", "ghosts", "dtype"), CASES)
def test_the_whole_evaluation(name, changes, ghosts, dtype):
    elements, frames = shape(name)
    settings = model_settings(elements, **changes)
    model, prepared = random_model(settings, dtype=dtype), make_ready(frames, settings, dtype)
    batch = all_in_one(prepared)
    if ghosts:
        batch = Ladder(prepared.structures).batch(np.arange(len(prepared)))
    with reference_path():
        wanted = everything(RowEvaluation, model, batch)
        plain = everything(FusedEvaluation, model, batch)
    found = everything(FusedEvaluation, model, batch)
    assert all(bool(values.isfinite().all()) for values in found)
    agree(plain, wanted)
    agree(found, wanted)


@pytest.mark.parametrize("name", ODD_SHAPES)
def test_batches_are_cut_out_the_same(name):
    """Bit by bit, frames in any order."""
    elements, frames = odd_shape(name)
    structures = make_ready(frames, model_settings(elements)).structures
    ladder, assembly = Ladder(structures), Assembly(structures)
    generator = np.random.default_rng(0)
    for left_out in range(min(3, len(frames))):
        members = generator.permutation(len(frames))[: len(frames) - left_out]
        sizes = ladder.sizes(members)
        padded = torch.from_numpy(ladder.frames(members, sizes))
        found, wanted = assembly.batch(padded, sizes), structures.batch(padded, sizes)
        for one, other in zip(tensors(found), tensors(wanted), strict=True):
            assert one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize("stage", [*STAGES.values(), Stage(), Stage(type_weight=(1.0, 0.3))])
@pytest.mark.parametrize("name", ["all kinds", "no neighbours", "many images"])
@pytest.mark.parametrize("sent", [False, True])
def test_loss(name, stage, sent):
    """With labels side by side, and as they are after batches were sent from host memory."""
    model, prepared = labelled(*odd_shape(name))
    batch = Ladder(prepared.structures).batch(np.arange(len(prepared)))
    if sent:
        batch = of_tensors([t.contiguous() for t in tensors(batch)], list(batch.tables))
    rules = rules_of(stage, 2, model.flat)
    energies, sums = (
        random(torch.float64, len(batch.types)),
        random(torch.float64, len(batch.types), 9),
    )
    frames = Segments(batch.atom_start, batch.atom_frame)
    predicted = frames.sum(energies), sums[:, :3], frames.sum(sums[:, 3:])
    wanted = loss(batch, rules, *predicted)
    of_batch = BatchLoss(batch, rules, energies, sums)
    agree([of_batch.parts.sum(0)], [error_sums(batch, rules, *predicted)])
    for totals in (None, of_batch.parts.sum(0)):
        value, terms, to_atoms, *derivatives = of_batch.derivatives(totals)
        agree(
            [value, terms, *derivatives],
            [wanted.value, wanted.terms, wanted.energy, wanted.forces, wanted.virial],
        )
        agree([to_atoms], [frames.spread(wanted.energy)])


@pytest.mark.parametrize("name", ["all kinds", "one type", "no angular pairs"])
def test_steps_on_kept_tables(name):
    """Whole objectives, on tables read in place and with ghosts whose neighbours' labels are bad."""
    model, prepared = labelled(*shape(name), invariants=("q222", "q1111"))
    structures = prepared.structures
    attach_constants(structures, model.settings)
    rules = rules_of(Stage(lambda_v=0.3), len(model.settings.elements), model.flat)
    members = np.arange(len(prepared))[::-1].copy()
    batch = Ladder(structures).batch(members)
    with reference_path():
        exact = structures.batch(torch.as_tensor(members))
        wanted = analytic(model, exact, model.flat, rules, True)
    found = fused(model, batch, model.flat, rules, True)
    agree([found[0].value, found[0].terms, found[1]], [wanted[0].value, wanted[0].terms, wanted[1]])


def test_ghosts_may_hold_anything_finite():
    """Constants of ghosts reach neither the loss nor its gradient."""
    frames = [odd_frames()[kind] for kind in ("thin", "two atoms")]
    model, prepared = labelled(odd_shape("all kinds")[0], frames)
    structures = prepared.structures
    attach_constants(structures, model.settings)
    rules = rules_of(Stage(), 2, model.flat)
    results = []
    for poison in (0.0, 1e3):
        for name in PAIR_TABLES:
            structures.tables[name][1][-1] = poison
        batch = Ladder(structures).batch(np.arange(2))
        results.append(fused(model, batch, model.flat, rules, True))
    assert torch.equal(results[0][1], results[1][1])
    assert torch.equal(results[0][0].value, results[1][0].value)


@pytest.mark.parametrize(
    ("l_max", "form", "dtype"),
    [
        (4, "universal", torch.float64),
        (1, "typewise", torch.float32),
        (8, "flexible", torch.float64),
    ],
)
def test_moving_atoms(l_max, form, dtype):
    """Sums over neighbours, forces and ZBL from positions, in tiles, with pairs beyond the cutoff."""
    elements = ("Te", "Pb", "O")
    frames = [odd_frames(elements)[kind] for kind in ("molecule", "isolated", "dimer", "one atom")]
    settings = model_settings(
        elements, angular=(3.4, 3.0, 2.9), l_max=l_max, invariants=(), zbl=zbl_forms(elements)[form]
    )
    field = DeviceField(random_model(settings, dtype=dtype), 0.4)
    with reference_path():
        field(frames)
        plain = field._moving()
    atoms, n_atoms = field._moving(), len(field.types)
    # The kernel leaves the pairs of an atom where the list has them, plain torch moves all up.
    one, other = (moving.angular_pairs(of, 0, n_atoms) for of in (atoms, plain))
    assert len(other.neighbor) > 0 and torch.equal(one.neighbor, other.neighbor)
    assert torch.equal(one.start, other.start) and torch.equal(one.vectors, other.vectors)
    agree([one.functions], [other.functions])
    n_pairs = plain.radial.vectors.shape[1]
    assert torch.equal(atoms.radial.vectors[:, :n_pairs], plain.radial.vectors)
    for of in field.lists:
        one, other = both(listed.turned_places, of.radial, len(of.images))
        assert torch.equal(one[0], other[0])
    q_slope = random(dtype, n_atoms, settings.descriptor_length)
    found, wanted = both(moving.radial_pulls, atoms, q_slope)
    pulls = found[0][:n_pairs]
    agree([pulls], wanted)
    slope = random(dtype, n_atoms, settings.n_max[1] + 1, (l_max + 1) ** 2 - 1)
    for first, last in ((0, n_atoms), (5, 9), (5, 5)):
        agree(*both(moving.neighbor_sums, atoms, first, last))
        agree(*both(moving.neighbor_forces, atoms, pulls, slope, first, last))
        agree(*both(repulsion.repulsions, atoms, field.zbl, first, last))


@pytest.mark.parametrize(
    ("elements", "dtype"),
    [
        (("Si", "Ge"), torch.float64),
        (("Nb", "Mo", "Ta", "W", "O"), torch.float32),
        (("Nb", "Mo", "Ta", "W", "O"), torch.float64),
        (ELEMENTS[:MANY], torch.float64),
        pytest.param(("Si", "Ge"), torch.float32, marks=pytest.mark.slow),
        *(pytest.param(ELEMENTS[:22], dtype, marks=pytest.mark.slow) for dtype in TOLERANCE),
    ],
)
def test_a_shared_base(elements, dtype):
    """What elements have in common, to the parameters and back."""
    model = random_model(model_settings(tuple(elements), **FULL), dtype=dtype)
    parameters = shared_base.Shared(model)
    generator = torch.Generator().manual_seed(0)
    parameters.latent.copy_(torch.randn(parameters.latent.shape, generator=generator))
    gradient = torch.randn(model.flat.shape, generator=generator).to(dtype)

    def done():
        flat, shared = torch.full_like(model.flat, np.nan), parameters.latent[parameters.size :]
        shared = torch.full_like(shared, np.nan)
        parameters.expand(flat)
        parameters.pull(gradient, shared)
        return flat, shared

    agree(*both(done))


@dtypes
@pytest.mark.parametrize(
    "kind, name",
    [("plain", "adam"), ("anchored", "adamw"), ("shared", "adamw"), ("shared", "muon")],
)
def test_updates(kind, name, dtype):
    """Steps of random gradients: 1 and 4 are not finite, 2 is clipped, 3 is not."""
    settings = model_settings(("Si", "Ge", "C", "O"), invariants=EVERY)
    frames = [*odd_frames(settings.elements).values()]
    kinds = {"plain": Plain, "anchored": Anchored, "shared": shared_base.Shared}
    rules, steps = Stage(optimizer=name, weight_decay=0.4, max_grad_norm=3.0), []
    for _ in range(2):
        prepared = make_ready(frames, settings)
        model = new_model(settings, [prepared], 3, device="cpu", dtype=dtype)
        with reference_path():
            steps.append(
                Step(
                    model, prepared.structures, rules, use_virial=False, parametrisation=kinds[kind]
                )
            )
    ours, plain = steps
    update = GpuUpdate(ours)
    start = ours.model.flat.clone()
    for number in range(5):
        gradient = random(dtype, len(model.flat)) * (1e-3 if number == 3 else 1.0)
        gradient[17] = {1: torch.inf, 4: torch.nan}.get(number, gradient[17])
        for step in steps:
            step.gradient.copy_(gradient)
        update(torch.tensor(1e-2), torch.tensor(0.3))
        with reference_path():
            plain._take_gradient(torch.tensor(1e-2), torch.tensor(0.3, dtype=dtype))
        found, wanted = (
            [s.parameters.latent, s.average, s.unusable, s.skipped, *s.optimizer.state().values()]
            for s in steps
        )
        # Plain torch has the factor that clips in float32.
        tolerance = 2e-8 if dtype == torch.float64 else 1e-5
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
    assert ours.skipped == 2 and ours.optimizer.steps == 3
    assert (ours.model.flat - start).abs().max() > 1e-3
