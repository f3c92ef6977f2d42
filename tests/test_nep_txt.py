"""nep.txt and nep.restart: every number survives, harmless differences are read."""

import lzma
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies
from nep_files import PLAIN, SMALL, assert_same, plain_file_lines, random_model, read_lines
from shares import environment

from nepkit.config import HIGHER_INVARIANTS, ModelSettings, Zbl
from nepkit.model.nep_txt import read_nep_txt
from nepkit.model.nep_txt_write import parameter_vector, write_nep_restart, write_nep_txt
from nepkit.units import ELEMENTS

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
GPUMD_MODELS = {
    "a_pbte/gpumd/nep.txt": 3033,
    "a_mos2_finetune/gpumd/nep_gen11000.txt": 6281,
    "b_alloy/crconi/nep_CrCoNi.txt": 17707,
    "models/unep_v1.txt.xz": 70401,
    "models/nep89_20250409.txt.xz": 976331,
}
ZBL_FORMS = [None, Zbl(1.0, 2.0), Zbl(1.25, 2.5, 0.7), Zbl(0.0, 2.5, 0.65), Zbl(0.0, 0.0, None, ())]
DTYPES = strategies.sampled_from([np.float64, np.float32])


def shared_file(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"needs {name} of the shared data")
    return path


@strategies.composite
def any_settings(draw) -> ModelSettings:
    elements = draw(
        strategies.lists(strategies.sampled_from(ELEMENTS), min_size=1, max_size=4, unique=True)
    )
    angular = [draw(strategies.sampled_from([3.0, 4.25, 5.1])) for _ in elements]
    l_max = draw(strategies.integers(1, 8))
    allowed = [name for name, needed in HIGHER_INVARIANTS.items() if needed <= l_max]
    small = strategies.integers(0, 3)
    return ModelSettings(
        tuple(elements),
        tuple(cutoff + draw(strategies.sampled_from([0.0, 1.7, 4.0])) for cutoff in angular),
        tuple(angular),
        (draw(small), draw(small)),
        (draw(small), draw(small)),
        l_max,
        tuple(name for name in allowed if draw(strategies.booleans())),
        draw(strategies.sampled_from([(1,), (4,), (2, 3), (3, 1)])),
        draw(strategies.sampled_from(ZBL_FORMS)),
    )


@settings(deadline=None, max_examples=60, database=None)
@given(any_settings(), DTYPES, strategies.integers(0, 99))
def test_round_trip(tmp_path_factory, model, dtype, seed):
    path = tmp_path_factory.getbasetemp() / "round_trip.txt"
    written = random_model(model, dtype, seed)
    write_nep_txt(path, written)
    read = read_nep_txt(path)
    assert_same(written, read)
    text = path.read_text()
    write_nep_txt(path, read)
    assert_same(read, read_nep_txt(path))
    if dtype == np.float64:
        assert path.read_text() == text


def test_89_elements_with_their_own_cutoffs(tmp_path):
    radial = tuple(6.0 + index / 64 for index in range(89))
    model = ModelSettings(ELEMENTS[:89], radial, (4.0,) * 89, (0, 0), (0, 0), 2, (), (1,))
    written = random_model(model, np.float32)
    write_nep_txt(tmp_path / "nep.txt", written)
    assert_same(written, read_nep_txt(tmp_path / "nep.txt"))


def test_order_of_the_numbers(tmp_path):
    """GPUMD's order: per element w0[neuron][input], b0, w1[second][first], b1, w2; bias; c."""
    model = ModelSettings(("H", "O"), (5.0,) * 2, (4.0,) * 2, (1, 0), (0, 1), 1, (), (2, 3))
    nep = random_model(model)
    expected = []
    for t in range(2):
        expected += [w for neuron in nep.hidden_weight[0][t] for w in neuron]
        expected += list(nep.hidden_bias[0][t])
        expected += [w for neuron in nep.hidden_weight[1][t] for w in neuron]
        expected += list(nep.hidden_bias[1][t]) + list(nep.output_weight[t])
    expected.append(nep.output_bias)
    for c in (nep.radial_coefficients, nep.angular_coefficients):
        for n in range(c.shape[2]):
            for k in range(c.shape[3]):
                expected += [c[t1, t2, n, k] for t1 in range(2) for t2 in range(2)]
    assert np.array_equal(parameter_vector(nep), expected)
    write_nep_txt(tmp_path / "nep.txt", nep)
    numbers = [float(line) for line in (tmp_path / "nep.txt").read_text().splitlines()[6:]]
    assert numbers == expected + list(nep.q_scaler)


def test_numbers_take_the_digits_they_need(tmp_path):
    nep = random_model(SMALL, np.float32)
    q_scaler = np.array([0.5, 1 / 3] * 7 + [-0.0])
    nep = replace(nep, output_bias=-2000.123456789012, q_scaler=q_scaler)
    write_nep_txt(tmp_path / "nep.txt", nep)
    lines = (tmp_path / "nep.txt").read_text().splitlines()
    assert f"{nep.output_bias:.16e}" in lines
    assert lines[-3:] == ["  5.0000000e-01", "3.3333333333333331e-01", " -0.0000000e+00"]
    assert set(map(len, lines[7:80])) == {15}  # nine digits at most for float32


@pytest.mark.parametrize("name", GPUMD_MODELS)
def test_gpumd_model_is_written_back_as_it_was(tmp_path, name):
    source = shared_file(name)
    if source.suffix == ".xz":
        path = tmp_path / "nep.txt"
        path.write_bytes(lzma.decompress(source.read_bytes()))
    else:
        path = source
    nep = read_nep_txt(path)
    assert parameter_vector(nep).size == GPUMD_MODELS[name]
    write_nep_txt(tmp_path / "copy.txt", nep)
    original, copy = path.read_text().split("\n"), (tmp_path / "copy.txt").read_text().split("\n")
    start = original.index(next(line for line in original if line.startswith("ANN")))
    assert original[start:] == copy[start:]
    for ours, theirs in zip(copy[:start], original[:start], strict=True):
        assert [as_number(word) for word in ours.split()] == [as_number(w) for w in theirs.split()]


def as_number(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


@pytest.mark.parametrize("folder", ["a_pbte", "a_mos2_finetune"])
def test_restart_has_the_rows_of_gpumd(tmp_path, folder):
    """GPUMD's best individual scatters around its mean by sigma, in the same order of rows."""
    mean, sigma = np.loadtxt(shared_file(f"{folder}/gpumd/nep.restart")).T
    nep = read_nep_txt(next((SHARED / folder / "gpumd").glob("nep*.txt")))
    write_nep_restart(tmp_path / "nep.restart", nep)
    ours = np.loadtxt(tmp_path / "nep.restart")
    assert ours.shape == (mean.size, 2)
    assert np.array_equal(ours[:, 0], parameter_vector(nep)) and (ours[:, 1] == 0.02).all()
    moved = sigma > 0
    # Half of a normal distribution lies within 0.674 sigma.
    assert 0.6 < np.median(np.abs(ours[:, 0] - mean)[moved] / sigma[moved]) < 0.75
    # What sigma 0 froze is equal, save the bias in front, which GPUMD shifts at the end.
    assert np.array_equal(ours[~moved, 0][1:], mean[~moved][1:])


def test_restart_lines_have_the_form_of_gpumd(tmp_path):
    nep = replace(random_model(SMALL), output_bias=0.25)
    write_nep_restart(tmp_path / "nep.restart", nep, sigma=0.05)
    assert "  2.5000000e-01   5.0000000e-02" in (tmp_path / "nep.restart").read_text().splitlines()


@pytest.fixture(scope="module")
def plain_lines(tmp_path_factory) -> list[str]:
    return plain_file_lines(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text + "\n  \n\t\n\n",
        lambda text: text.replace(" ", "\t"),
        lambda text: text.replace("\n", "  \n"),
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("e+", "E+"),
    ],
    ids="dos bom blank tabs spaces no_end capitals".split(),
)
def test_harmless_differences(tmp_path, plain_lines, change):
    path = tmp_path / "nep.txt"
    expected = read_lines(tmp_path, plain_lines)
    path.write_bytes(change(path.read_text()).encode())
    assert_same(expected, read_nep_txt(path))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_writers_refuse_what_is_not_finite(tmp_path, value):
    nep = random_model(PLAIN)
    nep.angular_coefficients[0, 1, 0, 0] = value
    for write in (write_nep_txt, write_nep_restart):
        with pytest.raises(ValueError, match="not finite"):
            write(tmp_path / "nep.txt", nep)
    assert list(tmp_path.iterdir()) == []


def test_shapes_must_fit_the_settings():
    nep = random_model(PLAIN)
    with pytest.raises(ValueError, match="the settings ask for"):
        replace(nep, q_scaler=nep.q_scaler[1:])
    with pytest.raises(ValueError, match="the settings ask for"):
        replace(nep, hidden_weight=(nep.hidden_weight[0].transpose(0, 2, 1),))
    with pytest.raises(ValueError, match="ten numbers for 3 pairs"):
        replace(nep, settings=replace(PLAIN, zbl=Zbl(0.0, 0.0, None, ((1.0,) * 10,))))


def test_needs_no_torch():
    program = "import sys, nepkit.model.nep_txt_write; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], env=environment()).returncode == 0
