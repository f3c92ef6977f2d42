"""The loss that a run tells, computed again with numpy from the files that it wrote (REFERENCE A7)."""

import re

import numpy as np
import pytest
from run_files import make_run, random_frames

from nepkit import train_nep
from nepkit.data.xyz import read_xyz

SHEAR = np.array([0, 0, 0, 1, 1, 1], bool)


def outputs(folder) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Predictions and labels by kind, NaN where there is no label."""
    found = {}
    for kind in ("energy", "force", "virial"):
        predicted, label = np.hsplit(np.loadtxt(folder / f"{kind}_train.out", ndmin=2), 2)
        found[kind] = predicted, np.where(label == -1e6, np.nan, label)
    return found


def numbers_of(folder) -> np.ndarray:
    """The trained numbers of a nep.txt of two elements: all but the energies and the q_scaler."""
    lines = (folder / "nep.txt").read_text().splitlines()
    header = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in lines[1:6]}
    radial, angular = (int(x) + 1 for x in header["n_max"])
    of_radial, of_angular = (int(x) + 1 for x in header["basis_size"])
    neurons = int(header["ANN"][0])
    l_max, q222 = header["l_max"][:2]
    width = radial + angular * int(l_max + (q222 > 0))
    numbers = np.array([float(line) for line in lines[6:]])
    networks, rest = np.split(numbers, [2 * neurons * (width + 2)])
    kept = []
    for network in networks.reshape(2, -1):
        weights, biases, output = np.split(network, [neurons * width, neurons * (width + 1)])
        # The last neuron sees no input: it holds the element's energy.
        assert not weights[-width:].any() and biases[-1] == 20
        kept += [weights[:-width], biases[:-1], output[:-1]]
    coefficients = 4 * (radial * of_radial + angular * of_angular)
    return np.concatenate([*kept, rest[1 : 1 + coefficients]])


@pytest.mark.parametrize("form", ["rmse", "mse"])
def test_loss_out_is_the_loss_of_gpumd(tmp_path, form):
    labels = random_frames(6)
    folder = make_run(
        tmp_path / "run", labels, loss_form=form, lambda_e=0.7, lambda_f=1.3, lambda_v=0.4,
        lambda_1=0.03, lambda_2=0.05, generation=9,
    )  # fmt: skip
    train_nep(folder, device="cpu", precision="float64")
    row = np.loadtxt(folder / "loss.out")[-1]
    roots = []
    for predicted, label in outputs(folder).values():
        error = (predicted - label)[~np.isnan(label)]
        roots.append(np.sqrt(np.mean(error**2)))
    z = numbers_of(folder)
    l1, l2 = 0.03 * np.mean(np.abs(z)), 0.05 * np.sqrt(np.mean(z**2))
    terms = np.array(roots) ** (1 if form == "rmse" else 2)
    total = l1 + l2 + np.dot([0.7, 1.3, 0.4], terms)
    np.testing.assert_allclose(row[4:7], roots, atol=1e-6)
    np.testing.assert_allclose(row[1:4], [total, l1, l2], atol=1e-6)


@pytest.mark.parametrize(
    "keywords",
    [
        {}, {"force_delta": 0.6}, {"type_weight": "0.5 2"}, {"lambda_shear": 3},
        {"force_delta": 0.6, "type_weight": "2 0.3", "lambda_shear": 0.5},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("form", ["rmse", "mse"])
def test_the_loss_of_a_step_has_gpumds_weights(tmp_path, form, keywords):
    """All frames are one batch and nothing moves, so that the saved model is the one of the step.

    Without the energies: the common bias of the saved model takes up their mean error.
    """
    frames = [
        frame.__class__(**{**frame.__dict__, "extra": f"weight={1 + k}"})
        for k, frame in enumerate(random_frames(5))
    ]
    folder = make_run(
        tmp_path / "run", frames, loss_form=form, lambda_e=0, lambda_f=1.3, lambda_v=0.4, batch=5,
        generation=1, output_interval=1, learning_rate="1e-30 1e-30", **keywords,
    )  # fmt: skip
    train_nep(folder, device="cpu", precision="float64")
    told = float((folder / "history.csv").read_text().splitlines()[1].split(",")[4])
    members, found = read_xyz(folder / "train.xyz"), outputs(folder)
    predicted, label = found["force"]
    weight = np.concatenate([np.full(len(f), f.weight**2) for f in members])
    numbers = np.concatenate([f.numbers for f in members])
    if "type_weight" in keywords:
        silicon, germanium = map(float, keywords["type_weight"].split())
        weight *= np.where(numbers == 14, silicon, germanium) ** 2
    if "force_delta" in keywords:
        weight *= 0.6 / (0.6 + np.sqrt((label**2).sum(1)))
    force = np.sum(weight[:, None] * (predicted - label) ** 2) / label.size
    predicted, label = found["virial"]
    weight = np.array([f.weight**2 for f in members])[:, None]
    weight = weight * np.where(SHEAR, keywords.get("lambda_shear", 1) ** 2, 1)
    virial = np.sum(weight * (predicted - label) ** 2) / label.size
    power = 0.5 if form == "rmse" else 1
    assert told == pytest.approx(1.3 * force**power + 0.4 * virial**power, abs=1e-6, rel=1e-7)
    assert re.search(r"^lambda_e +0", (folder / "nepkit_resolved.in").read_text(), re.MULTILINE)
