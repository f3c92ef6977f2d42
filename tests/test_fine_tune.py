"""Fine-tuning: starts as the potential that is there, and remembers what it is told to."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from run_files import make_run, write_nep_in
from structures import (
    evaluate,
    model_settings,
    odd_frames,
    random_file,
    shared,
    zbl_forms,
)

from nepkit import train_nep
from nepkit.cli import main
from nepkit.config import Stage, read_nep_in
from nepkit.errors import UserError
from nepkit.model.conversion import model_from_file
from nepkit.model.nep_txt import read_nep_txt
from nepkit.model.nep_txt_write import write_nep_txt
from nepkit.model.slim import most_similar, slim
from nepkit.train import checkpoint
from nepkit.units import ATOMIC_NUMBERS, group

FOUR = ("Te", "Ge", "Pb", "Si")


@pytest.mark.parametrize("form", [None, *zbl_forms(FOUR)])
def test_a_slimmed_potential_is_the_potential(form):
    settings = model_settings(
        FOUR,
        radial=(4.5, 4.2, 4.0, 3.9),
        angular=(3.4, 3.3, 3.2, 3.1),
        zbl=form and zbl_forms(FOUR)[form],
    )
    file = random_file(settings)
    frames = list(odd_frames(("Si", "Ge")).values())
    for elements in (("Si", "Ge"), ("Ge", "Si"), ("Si", "Te", "Ge")):
        found = evaluate(
            model_from_file(slim(file, elements), device="cpu", dtype=torch.float64), frames
        )
        wanted = evaluate(model_from_file(file, device="cpu", dtype=torch.float64), frames)
        for name in ("energy", "forces", "virial"):
            one, other = getattr(found, name), getattr(wanted, name)
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-10)
    with pytest.raises(ValueError, match="not in"):
        slim(file, ("Si", "C"))


def foundation(folder, **changes):
    """A run directory of Si and Ge that starts from a potential of four elements."""
    make_run(folder, **changes)
    config = read_nep_in(folder / "nep.in")
    model = replace(
        config.model, elements=FOUR, neuron=(5,),
        radial_cutoff=config.model.radial_cutoff[:1] * 4,
        angular_cutoff=config.model.angular_cutoff[:1] * 4,
    )  # fmt: skip
    file = random_file(model)
    write_nep_txt(folder / "big.txt", file)
    write_nep_in(folder, fine_tune="big.txt", neuron=5, generation=0)
    return slim(read_nep_txt(folder / "big.txt"), config.model.elements)


def test_it_starts_as_the_potential(tmp_path):
    """Before the first step forces are those of the potential, energies but for a shift an element."""
    start = foundation(tmp_path / "run")
    train_nep(tmp_path / "run", device="cpu", precision="float64")
    found = read_nep_txt(tmp_path / "run" / "nep.txt")
    assert found.settings.neuron == (6,)  # one more for the energies of the elements
    np.testing.assert_allclose(found.q_scaler, start.q_scaler, rtol=1e-6)
    frames = list(odd_frames(("Si", "Ge")).values())
    one, other = (
        evaluate(model_from_file(file, device="cpu", dtype=torch.float64), frames)
        for file in (found, start)
    )
    np.testing.assert_allclose(one.forces, other.forces, rtol=1e-5, atol=1e-5)
    counts = np.array([[np.sum(f.numbers == z) for z in (14, 32)] for f in frames])
    shift, rest, *_ = np.linalg.lstsq(counts, one.energy - other.energy, rcond=None)
    assert rest < 1e-8 and np.abs(shift).max() > 1e-3


def test_a_frozen_descriptor_stays(tmp_path):
    start = foundation(tmp_path / "run")
    train_nep(tmp_path / "run", device="cpu", generation=6, fine_tune=("big.txt", "big.restart", 0))
    found = read_nep_txt(tmp_path / "run" / "nep.txt")
    np.testing.assert_allclose(found.radial_coefficients, start.radial_coefficients, rtol=1e-6)
    np.testing.assert_allclose(found.angular_coefficients, start.angular_coefficients, rtol=1e-6)
    assert not np.allclose(found.hidden_weight[0][:, :5], start.hidden_weight[0], rtol=1e-4)


def test_weight_decay_draws_weights_back(tmp_path):
    start = foundation(tmp_path / "run")
    moved = []
    for decay in (0.0, 300.0):
        out = tmp_path / f"decay {decay}"
        train_nep(
            tmp_path / "run", out=out, device="cpu", generation=30, weight_decay=decay, ema=0.0
        )
        found = read_nep_txt(out / "nep.txt")
        parts = [(m.radial_coefficients, m.hidden_bias[0]) for m in (found, start)]
        parts[0] = parts[0][0], parts[0][1][:, : parts[1][1].shape[1]]  # but the energies' neuron
        moved.append([np.abs(now - then).mean() for now, then in zip(*parts)])
    assert moved[1][0] < 0.5 * moved[0][0] and moved[1][1] < 0.5 * moved[0][1]


def test_it_goes_on_and_notices_another_potential(tmp_path):
    foundation(tmp_path / "run")
    folder = tmp_path / "run"
    train_nep(folder, out=tmp_path / "straight", device="cpu", generation=9)
    train_nep(folder, out=tmp_path / "longer", device="cpu", generation=6)
    state = checkpoint.load(tmp_path / "longer")
    assert state["done"] == 6
    write_nep_txt(
        folder / "big.txt", random_file(read_nep_txt(folder / "big.txt").settings, seed=5)
    )
    with pytest.raises(UserError, match=r"big\.txt"):
        train_nep(folder, out=tmp_path / "longer", device="cpu", generation=9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"neuron": 6}, ["big.txt", "write in nep.in", "neuron                  5"]),
        ({"fine_tune": "absent.txt"}, ["absent.txt"]),
        ({"type": "2 Si C"}, ["big.txt", "no C", "Te Ge Pb Si"]),
    ],
)
def test_mistakes(tmp_path, changes, words):
    foundation(tmp_path / "run")
    with pytest.raises(UserError) as caught:
        if "type" in changes:  # frames of the elements that the potential does not have
            text = (tmp_path / "run" / "train.xyz").read_text()
            (tmp_path / "run" / "train.xyz").write_text(text.replace("Ge ", "C "))
        train_nep(tmp_path / "run", device="cpu", **changes)
    for word in words:
        assert word in str(caught.value)


def test_its_learning_rate_is_gentle(tmp_path):
    foundation(tmp_path / "run")
    config = read_nep_in(tmp_path / "run" / "nep.in")
    assert config.stages[0].learning_rate < Stage().learning_rate
    written = read_nep_in(tmp_path / "run" / "nep.in", {"learning_rate": "0.01 1e-5"})
    assert written.stages[0].learning_rate == (0.01, 1e-5)


@pytest.mark.slow
def test_nep89_on_molybdenum_disulfide(tmp_path):
    """GPUMD's own example, every fifth frame held out."""
    import lzma

    from nepkit.data.xyz import read_xyz

    folder = tmp_path / "run"
    folder.mkdir()
    packed = shared("data/models/nep89_20250409.txt.xz").read_bytes()
    (folder / "nep89.txt").write_bytes(lzma.decompress(packed))
    source = shared("data/a_mos2_finetune/train.xyz")
    lines, first = source.read_text().splitlines(True), 0
    parts = {"train": [], "test": []}
    for index in range(len(read_xyz(source))):
        last = first + int(lines[first]) + 2
        parts["test" if index % 5 == 4 else "train"] += lines[first:last]
        first = last
    for name, part in parts.items():
        (folder / f"{name}.xyz").write_text("".join(part))
    (folder / "nep.in").write_text(
        "fine_tune nep89.txt nep89.restart\ntype 2 Mo S\nzbl 2\ncutoff 6 5\nn_max 4 4\n"
        "basis_size 8 8\nl_max 4 2 1\nneuron 80\nlambda_v 1\ngeneration 4000\n"
    )
    found = train_nep(folder, device="cpu")["test"]
    assert found.energy < 1e-3 and found.force < 0.060 and found.virial < 0.010


@pytest.mark.parametrize("extra", [{"lambda_1": 0.1}, {"lambda_2": 0.1}, {"weight_decay": 1.0}])
def test_a_frozen_descriptor_stays_whatever_the_loss(tmp_path, extra):
    start = foundation(tmp_path / "run")
    frozen = ("big.txt", "big.restart", 0)
    train_nep(tmp_path / "run", device="cpu", generation=6, fine_tune=frozen, **extra)
    found = read_nep_txt(tmp_path / "run" / "nep.txt")
    np.testing.assert_allclose(found.radial_coefficients, start.radial_coefficients, rtol=1e-6)


def test_freezing_later_is_another_run(tmp_path):
    foundation(tmp_path / "run")
    train_nep(tmp_path / "run", device="cpu", generation=6)
    with pytest.raises(UserError, match="freeze is new"):
        train_nep(
            tmp_path / "run", device="cpu", generation=9, fine_tune=("big.txt", "big.restart", 0)
        )


def test_a_lone_flag_is_no_file(tmp_path):
    foundation(tmp_path / "run")
    with pytest.raises(UserError, match="comes third"):
        train_nep(tmp_path / "run", device="cpu", fine_tune=("big.txt", 0))


def test_a_full_network_leaves_no_room(tmp_path):
    foundation(tmp_path / "run")
    settings = read_nep_txt(tmp_path / "run" / "big.txt").settings
    write_nep_txt(tmp_path / "run" / "big.txt", random_file(replace(settings, neuron=(120,))))
    with pytest.raises(UserError, match="120 neurons leave no room"):
        train_nep(tmp_path / "run", device="cpu", neuron=120)


def test_restart_does_not_move_what_it_starts_from(tmp_path):
    folder = tmp_path / "run"
    foundation(folder)
    train_nep(folder, device="cpu", generation=3)
    with pytest.raises(UserError, match="would move"):
        train_nep(folder, device="cpu", fine_tune="nep_best.txt", neuron=6, restart=True)
    assert (folder / "nep_best.txt").exists() and (folder / "checkpoint.pt").exists()


def test_frozen_networks_stay(tmp_path):
    start = foundation(tmp_path / "run")
    train_nep(tmp_path / "run", device="cpu", generation=6, freeze="networks", weight_decay=1.0)
    found = read_nep_txt(tmp_path / "run" / "nep.txt")
    for layer, other in zip(found.hidden_weight, start.hidden_weight):
        np.testing.assert_allclose(layer[:, :5], other, rtol=1e-6)
    np.testing.assert_allclose(found.hidden_bias[0][:, :5], start.hidden_bias[0], rtol=1e-6)
    np.testing.assert_allclose(found.output_weight[:, :5], start.output_weight, rtol=1e-6)
    assert not np.allclose(found.radial_coefficients, start.radial_coefficients, rtol=1e-4)


def test_freeze_descriptor_is_the_zero_of_gpumd(tmp_path):
    foundation(tmp_path / "run")
    folder, runs = tmp_path / "run", []
    for name, settings in (
        ("ours", {"freeze": "descriptor"}),
        ("two names", {"freeze": "descriptor", "fine_tune": "big.txt big.restart"}),
        ("theirs", {"fine_tune": "big.txt big.restart 0"}),
    ):
        train_nep(folder, out=tmp_path / name, device="cpu", generation=6, **settings)
        runs.append((tmp_path / name / "nep.txt").read_bytes())
    assert runs[0] == runs[1] == runs[2]
    with pytest.raises(UserError, match="nothing is left to train"):
        train_nep(folder, device="cpu", fine_tune="big.txt big.restart 0", freeze="networks")


def test_the_option_names_a_file_from_where_one_is(tmp_path, monkeypatch, capsys):
    foundation(tmp_path / "run")
    write_nep_in(tmp_path / "run", neuron=5, generation=3)
    (tmp_path / "run" / "big.txt").rename(tmp_path / "moved.txt")
    monkeypatch.chdir(tmp_path)
    command = ["train", "run", "--finetune", "moved.txt", "--device", "cpu"]
    assert main([*command, "--out", "out"]) == 0
    # What is written down works from the folder that it lies in.
    written = read_nep_in(tmp_path / "out" / "nepkit_resolved.in").fine_tune[0]
    assert (tmp_path / "out" / written).samefile(tmp_path / "moved.txt")
    for name in ("train.xyz", "nepkit_resolved.in"):
        source = tmp_path / ("run" if name == "train.xyz" else "out") / name
        target = tmp_path / "again" / name.replace("nepkit_resolved", "nep")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(source.read_bytes())
    assert main(["train", "again", "--device", "cpu"]) == 0
    assert (tmp_path / "again/nep.txt").read_bytes() == (tmp_path / "out/nep.txt").read_bytes()
    capsys.readouterr()
    assert main([*command, "fine_tune=moved.txt"]) == 2
    assert "given twice" in capsys.readouterr().err


def of_carbon(folder):
    """The run's frames with C in place of Ge, which the potential does not have."""
    text = (folder / "train.xyz").read_text()
    (folder / "train.xyz").write_text(text.replace("Ge ", "C "))
    write_nep_in(folder, type="2 Si C", fine_tune="big.txt", neuron=5, generation=0)


def test_a_new_element_has_to_be_named(tmp_path):
    foundation(tmp_path / "run")
    of_carbon(tmp_path / "run")
    for settings, words in (
        ({}, "has no C, .*\n.*write new_elements C"),
        ({"new_elements": "Si C"}, "new_elements Si: the potential has it"),
        ({"new_elements": "C N"}, "new_elements N: type does not name it"),
    ):
        with pytest.raises(UserError, match=words):
            train_nep(tmp_path / "run", device="cpu", **settings)
    write_nep_in(tmp_path / "run", neuron=5)
    for keyword, value in (("new_elements", "C"), ("freeze", "networks")):
        with pytest.raises(UserError, match="for fine_tune alone"):
            train_nep(tmp_path / "run", device="cpu", **{keyword: value})


def test_a_new_element_starts_as_its_like(tmp_path, capsys):
    """C as Si, which type names too, with all pairs of Si; energies follow the data."""
    foundation(tmp_path / "run")
    folder, big = tmp_path / "run", read_nep_txt(tmp_path / "run" / "big.txt")
    of_carbon(folder)
    train_nep(folder, device="cpu", precision="float64", new_elements="C")
    assert "C is new and starts as Si" in capsys.readouterr().out
    found, silicon = read_nep_txt(folder / "nep.txt"), FOUR.index("Si")
    for k in range(2):
        weights = found.hidden_weight[0][k, :5]
        np.testing.assert_allclose(weights, big.hidden_weight[0][silicon], rtol=1e-6)
        for other in range(2):
            for name in ("radial_coefficients", "angular_coefficients"):
                wanted = getattr(big, name)[silicon, silicon]
                np.testing.assert_allclose(getattr(found, name)[k, other], wanted, rtol=1e-6)
    longer = train_nep(folder, device="cpu", precision="float64", new_elements="C", generation=20)
    assert np.isfinite(longer["train"].force)
    apart = read_nep_txt(folder / "nep.txt").hidden_weight[0]
    assert not np.allclose(apart[0], apart[1], rtol=1e-4)


@pytest.mark.parametrize(
    ("element", "others", "like"),
    [
        ("S", "Mo O Se Te P Cl", "Se"), ("C", "Te Ge Pb Si", "Si"), ("Na", "Mg Li K Cs", "Li"),
        ("Nd", "Hf La Y Ba", "La"), ("Fe", "Ni Cu Ti Mn", "Mn"), ("W", "Mo Ta Re", "Mo"),
    ],
)  # fmt: skip
def test_likeness(element, others, like):
    assert most_similar(element, others.split()) == like


def test_groups_of_the_periodic_table():
    columns = {1: "H Li Na K Rb Cs Fr", 2: "Be Ba", 3: "Sc Y La Lu Ac U", 4: "Ti Zr Hf", 6: "Cr W",
               11: "Cu Au", 12: "Zn Hg", 13: "B Al Tl", 14: "C Pb", 17: "F I At", 18: "He Ne Rn"}  # fmt: skip
    for column, elements in columns.items():
        for element in elements.split():
            assert group(ATOMIC_NUMBERS[element]) == column, element
