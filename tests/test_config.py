"""nep.in: every keyword acts, every mistake has a place, and what is written reads back equal."""

import string
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nepkit.config import (
    HIGHER_INVARIANTS,
    ModelSettings,
    NepConfig,
    Stage,
    Zbl,
    read_nep_in,
    to_nep_in,
)
from nepkit.errors import UserError
from nepkit.nep_in import COMMAND_LINE, KEYWORDS
from nepkit.units import ELEMENTS

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
TYPE = "type 2 Te Pb\n"
MODEL = ModelSettings(("Te", "Pb"), (8.0, 8.0), (4.0, 4.0))
QUICK = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def read(tmp_path):
    """Reads a text as the nep.in of an empty folder."""

    def read(text, overrides=None, zbl=None):
        path = tmp_path / "nep.in"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        if zbl is not None:
            (tmp_path / "zbl.in").write_text(zbl)
        return read_nep_in(path, overrides or {})

    return read


def message_of(read, text, overrides=None, zbl=None):
    with pytest.raises(UserError) as caught:
        read(text, overrides, zbl)
    assert str(caught.value).count("\n") <= 1
    return str(caught.value)


# What each keyword does -----------------------------------------------------------------------


def test_defaults_are_those_of_gpumd(read):
    assert read(TYPE) == NepConfig(MODEL, (Stage(),))
    assert (MODEL.n_max, MODEL.basis_size, MODEL.neuron) == ((6, 6), (6, 6), (30,))
    assert (MODEL.l_max, MODEL.invariants, MODEL.zbl) == (4, ("q222",), None)
    assert MODEL.descriptor_length == 7 + MODEL.angular_length == 7 + 5 * 7
    with pytest.raises(FrozenInstanceError):
        MODEL.l_max = 3


MODEL_LINES = {
    "cutoff 6 5": {"radial_cutoff": (6.0, 6.0), "angular_cutoff": (5.0, 5.0)},
    "cutoff 8 4 5.5 3.5": {"radial_cutoff": (8.0, 5.5), "angular_cutoff": (4.0, 3.5)},
    "cutoff 5 5": {"radial_cutoff": (5.0, 5.0), "angular_cutoff": (5.0, 5.0)},
    "cutoff 1e2 +3.": {"radial_cutoff": (100.0, 100.0), "angular_cutoff": (3.0, 3.0)},
    "n_max 0 8": {"n_max": (0, 8)},
    "basis_size 16 12": {"basis_size": (16, 12)},
    "neuron 80": {"neuron": (80,)},
    "neuron 40 20": {"neuron": (40, 20)},
    "neuron 40 0": {"neuron": (40,)},
    "neuron 0x10": {"neuron": (16,)},
    "neuron 010": {"neuron": (8,)},
    "l_max 4": {"l_max": 4, "invariants": ("q222",)},
    "l_max 4 2 1": {"l_max": 4, "invariants": ("q222", "q1111")},
    "l_max 4 0 1": {"l_max": 4, "invariants": ("q1111",)},
    "l_max 4 0": {"l_max": 4, "invariants": ()},
    "l_max 4 1 0 0 0 0 0": {"l_max": 4, "invariants": ("q222",)},
    "l_max 4 1 -1 1 1 1 1": {"l_max": 4, "invariants": tuple(HIGHER_INVARIANTS)},
    "l_max 8 0 0 0 0 1 0": {"l_max": 8, "invariants": ("q233",)},
    "l_max 1": {"l_max": 1, "invariants": ()},
    "l_max 1 0 1": {"l_max": 1, "invariants": ("q1111",)},
    "zbl 2": {"zbl": Zbl(1.0, 2.0)},
    "zbl 4\nuse_typewise_cutoff_zbl": {"zbl": Zbl(2.0, 4.0, 0.7)},
    "use_typewise_cutoff_zbl 0.65\nzbl 4": {"zbl": Zbl(2.0, 4.0, 0.65)},
    "version 4\nmode 0\ncharge_mode 0\nvdw 0\ncharge_vdw 0": {},
}
RUN_LINES = {
    "fine_tune a.txt a.restart 0": {
        "fine_tune": ("a.txt", "a.restart", False),
        "stages": (Stage(learning_rate=(2e-3, 1e-5)),),
    },
    "fine_tune a.txt": {"fine_tune": ("a.txt",), "stages": (Stage(learning_rate=(2e-3, 1e-5)),)},
    "freeze networks\nfine_tune a.txt": {
        "fine_tune": ("a.txt",),
        "freeze": "networks",
        "stages": (Stage(learning_rate=(2e-3, 1e-5)),),
    },
    "new_elements C N\nfine_tune a.txt": {
        "fine_tune": ("a.txt",),
        "new_elements": ("C", "N"),
        "stages": (Stage(learning_rate=(2e-3, 1e-5)),),
    },
    "prediction 1": {"prediction": True},
    "import_q_scaler 1": {"import_q_scaler": True},
    "output_descriptor 2": {"output_descriptor": 2},
    "save_potential 1000 0 1": {"save_potential": (1000, 0, 1)},
    "save_potential 1000 0": {"save_potential": (1000, 0, 0)},
    "output_interval 10": {"output_interval": 10},
    "seed 7": {"seed": 7},
    "valid_ratio 0.1": {"valid_ratio": 0.1},
    "shared_base 1": {"shared_base": True},
    "early_stop 2000": {"early_stop": 2000},
}
STAGE_LINES = {
    "generation 20000": {"generation": 20000},
    "generation auto": {"generation": None},
    "generation 100000 exact": {"generation": 100000},
    "epoch 40": {"epoch": 40},
    "batch 25": {"batch": 25},
    "batch auto": {"batch": None},
    "batch 1000 exact": {"batch": 1000},
    "batch 1000 0 exact": {"batch": 1000},
    "batch 1001 0": {"batch": 1001},
    "batch_atoms 500": {"batch_atoms": 500},
    "learning_rate 5e-3 1e-6": {"learning_rate": (5e-3, 1e-6)},
    "warmup 0": {"warmup": 0},
    "weight_decay .01": {"weight_decay": 0.01},
    "optimizer adam": {"optimizer": "adam"},
    "loss_form rmse": {"loss_form": "rmse"},
    "max_grad_norm 5": {"max_grad_norm": 5.0},
    "ema 0": {"ema": 0.0},
    "lambda_e 2": {"lambda_e": 2.0},
    "lambda_f 2": {"lambda_f": 2.0},
    "lambda_v 0": {"lambda_v": 0.0},
    "lambda_1 0.05": {"lambda_1": 0.05},
    "lambda_2 0.05": {"lambda_2": 0.05},
    "lambda_shear 3": {"lambda_shear": 3.0},
    "force_delta -1": {"force_delta": -1.0},
    "type_weight 1 0.5": {"type_weight": (1.0, 0.5)},
}
IDLE_LINES = {
    "population 50": "population",
    "sigma0 0.05": "sigma0",
    "initial_para 0.5": "initial_para",
    "atomic_v 1": "atomic_v",
    "lambda_q 0.1": "lambda_q",
    "lambda_z 0.5": "lambda_z",
    "batch 7 1": "use_full_batch",
    "charge_mode 0 1": "flip_charge",
    "use_typewise_cutoff_zbl": "use_typewise_cutoff_zbl",
}


@pytest.mark.parametrize("lines", MODEL_LINES)
def test_model_keywords(read, lines):
    assert read(lines + "\n" + TYPE).model == replace(MODEL, **MODEL_LINES[lines])


@pytest.mark.parametrize("line", RUN_LINES)
def test_run_keywords(read, line):
    assert read(TYPE + line) == replace(NepConfig(MODEL), **RUN_LINES[line])


@pytest.mark.parametrize("line", STAGE_LINES)
def test_stage_keywords(read, line):
    config = read(TYPE + line)
    assert config == NepConfig(MODEL, (replace(Stage(), **STAGE_LINES[line]),))


@pytest.mark.parametrize("line", IDLE_LINES)
def test_keywords_without_effect(read, line):
    config = read(TYPE + line)
    assert config.notes == (f"without effect here: {IDLE_LINES[line]}",)
    assert config.model == MODEL
    assert replace(config.stages[0], batch=None) == Stage()


def test_every_keyword_is_tested():
    effects = "\n".join([TYPE.strip(), *MODEL_LINES, *RUN_LINES, *STAGE_LINES, *IDLE_LINES])
    mistakes = "\n".join(lines for lines, _ in MISTAKES)
    without = {"model_type", "use_typewise_cutoff"}  # an alias is there, or no effect
    for text, missing in ((effects, without), (mistakes, set())):
        assert set(KEYWORDS) - {line.split()[0] for line in text.splitlines()} == missing


def test_keywords_without_effect_are_named_once_together(read):
    config = read(TYPE + "population 50\nbatch 5 1\nsigma0 0.1\nstage\nbatch 6 1")
    assert config.notes == ("without effect here: population, sigma0, use_full_batch",)


def test_gpumds_defaults_are_replaced_and_nothing_else(read):
    config = read(TYPE + "generation 100000\nbatch 1000\nstage\nbatch 999\nstage\nbatch 1000 1")
    assert [(stage.generation, stage.batch) for stage in config.stages] == [
        (None, None),
        (None, 999),
        (None, None),
    ]
    replaced = [note for note in config.notes if "replaced" in note]
    assert [note.split(" is ")[0] for note in replaced] == ["generation 100000", "batch 1000"]
    # What is said on the command line of nepkit is not a stock file of GPUMD.
    assert read(TYPE, {"generation": 100000}).stages == (Stage(generation=100000),)


def test_l_max_1_is_noted(read):
    assert read(TYPE + "l_max 1").notes == ("l_max 1: GPUMD's own trainer takes 2 to 8",)


def test_text_forms(read):
    text = "# all\r\n\r\n\ttype\t2 Te Pb #no. of types\r\nn_max 4 5 #6\r\n   \r\n#neuron 10\r\n"
    expected = NepConfig(replace(MODEL, n_max=(4, 5)))
    assert read(text) == read(b"\xef\xbb\xbf" + text.encode()) == expected
    assert read(text.encode() + b"# \xd6\xd0\xce\xc4 in another encoding") == expected


def test_all_elements_with_their_own_cutoffs(read):
    count = len(ELEMENTS)
    text = f"cutoff {'6 5 ' * (count - 1)} 7 5\ntype {count} {' '.join(ELEMENTS)}"
    model = read(text).model
    assert model.elements == ELEMENTS
    assert model.radial_cutoff == (6.0,) * (count - 1) + (7.0,)


def test_flexible_zbl(read):
    numbers = [0.5 * number for number in range(30)]
    text = " ".join(map(str, numbers[:7])) + "\n\n" + "\r\n".join(map(str, numbers[7:]))
    config = read(TYPE + "zbl 2\nuse_typewise_cutoff_zbl", zbl=text)
    rows = tuple(tuple(numbers[start : start + 10]) for start in (0, 10, 20))
    assert config.model.zbl == Zbl(0.0, 0.0, None, rows)
    assert config.notes == ("without effect here: use_typewise_cutoff_zbl",)
    assert read(to_nep_in(config)) == replace(config, notes=())
    assert read(TYPE).model.zbl is None  # the file counts only where zbl is set


# Stages ---------------------------------------------------------------------------------------


def test_each_stage_inherits_from_the_one_before(read):
    config = read(
        TYPE + "generation 500\nlambda_f 2\ntype_weight 1 2\n"
        "stage # refine\nepoch 3\nlambda_e 10\nstage\ngeneration 7\nbatch 4\nstage"
    )
    first = Stage(generation=500, lambda_f=2.0, type_weight=(1.0, 2.0))
    second = replace(first, generation=None, epoch=3, lambda_e=10.0)
    third = replace(second, generation=7, epoch=None, batch=4)
    assert config.stages == (first, second, third, third)


# Overrides ------------------------------------------------------------------------------------


def test_overrides_replace_lines(read):
    text = TYPE + "neuron 500 oops\nmode 3\ncutoff 8 4\nlearning_rate 1e-3 1e-4"
    config = read(
        text,
        {"neuron": 40, "cutoff": (6, 5), "learning_rate": "1e-2 1e-5", "model_type": 0},
    )
    assert config == read(TYPE + "neuron 40\ncutoff 6 5\nlearning_rate 1e-2 1e-5")


@pytest.mark.parametrize("value, factor", [(True, 0.7), ("", 0.7), (0.8, 0.8)])
def test_override_without_a_value(read, value, factor):
    config = read(TYPE, {"zbl": 2.0, "use_typewise_cutoff_zbl": value, "prediction": True})
    assert config.model.zbl == Zbl(1.0, 2.0, factor)
    assert config.prediction is True


def test_overrides_hold_in_all_stages(read):
    text = TYPE + "generation 5\nlambda_e 2\nstage\ngeneration 6\nlambda_e 3\nlambda_f 4"
    config = read(text, {"lambda_e": 9, "epoch": 1})
    stage = Stage(epoch=1, lambda_e=9.0)
    assert config.stages == (stage, replace(stage, lambda_f=4.0))


@pytest.mark.parametrize(
    "overrides, parts",
    [
        ({"neuron": "4x"}, ['"neuron 4x"', "at most 120"]),
        ({"nueron": 4}, ['"nueron 4"', '"neuron"']),
        ({"cutoff": (4, 5)}, ['"cutoff 4 5"']),
        ({"cutoff": ()}, ['"cutoff"', "rR rA"]),
        ({"ema": float("nan")}, ['"ema nan"']),
        ({"epoch": 1, "generation": 2}, ['"generation 2"', '"epoch 1"']),
        ({"mode": 0, "model_type": 0}, ['"model_type 0"', '"mode 0"']),
        ({"stage": ""}, ['"stage"']),
    ],
)
def test_mistakes_in_overrides_name_the_command_line(read, overrides, parts):
    message = message_of(read, TYPE, overrides)
    assert message.startswith(COMMAND_LINE + ": ")
    assert all(part in message for part in parts), message


# Mistakes -------------------------------------------------------------------------------------

# The faulty line, and what the message says besides quoting it.
MISTAKES = [
    ("nuron 40", ["unknown keyword", '"neuron"']),
    ("Neuron 40", ["unknown keyword", '"neuron"']),
    ("start_lr 0.1", ["unknown keyword"]),
    ("neuron 40 # again\nneuron 50", ["line 2", '"neuron 40 # again"']),
    ("model_type 0\nmode 0", ["line 2"]),
    ("generation 5\nepoch 5", ["line 2", '"generation 5"']),
    ("epoch 5\ngeneration 5", ["line 2", '"epoch 5"']),
    ("stage\nneuron 40", ["above the first stage line"]),
    ("stage\nseed 1", ["above the first stage line"]),
    ("stage 2", ["stands alone"]),
    ("type 2 Te Pb", ["line 1"]),
    ("neuron", ["wrong number of values", "N1 [N2]"]),
    ("neuron 1 2 3", ["wrong number of values", "N1 [N2]"]),
    ("n_max 4", ["wrong number of values"]),
    ("prediction", ["wrong number of values"]),
    ("generation 5 6", ["wrong number of values"]),
    ("generation exact", ["wrong number of values"]),
    ("cutoff 6", ["wrong number of values", "rR rA"]),
    ("cutoff 6 5 6", ["3 values", "2 elements"]),
    ("cutoff 6 5 6 5 6 5", ["6 values", "2 elements"]),
    ("cutoff 5 6", ["above the radial cutoff"]),
    ("cutoff 6 5 4 4.5", ["4.5 above the radial cutoff 4"]),
    ("cutoff 6 2.9", ["at least 3"]),
    ("cutoff 101 4", ["at most 100"]),
    ("cutoff 6,0 5", ["is not a number"]),
    ("cutoff nan 4", ["is not a number"]),
    ("cutoff 1e999 4", ["is not a number"]),
    ("force_delta inf", ["is not a number"]),
    ("force_delta 1_0", ["is not a number"]),
    ("n_max 13 4", ["at most 12"]),
    ("n_max 4 9", ["at most 8"]),
    ("n_max 4 -1", ["at least 0"]),
    ("basis_size 17 8", ["at most 16"]),
    ("basis_size 8 13", ["at most 12"]),
    ("l_max 0", ["at least 1"]),
    ("l_max 9", ["at most 8"]),
    ("l_max 4 x", ["whole number"]),
    ("l_max 4 1 1 1 1 1 1 1", ["wrong number of values"]),
    ("l_max 1 1", ["q222 needs l_max 2"]),
    ("l_max 1 0 0 1", ["q112 needs l_max 2"]),
    ("l_max 2 0 0 0 1", ["q123 needs l_max 3"]),
    ("l_max 2 0 0 0 0 1", ["q233 needs l_max 3"]),
    ("l_max 3 1 1 1 1 1 1", ["q134 needs l_max 4"]),
    ("n_max 4 8\nl_max 8 1 1 1", ["99", "at most 90"]),
    ("neuron 121", ["at most 120"]),
    ("neuron 0", ["at least 1"]),
    ("neuron 30.5", ["whole number"]),
    ("neuron 08", ["whole number"]),
    ("neuron " + "9" * 90, ["whole number"]),
    ("neuron 0b11", ["whole number"]),
    ("neuron 3_0", ["whole number"]),
    ("neuron \u0663", ["whole number"]),
    ("zbl 0.9", ["at least 1"]),
    ("zbl 4.1", ["at most 4"]),
    ("use_typewise_cutoff_zbl 0.4", ["at least 0.5"]),
    ("use_typewise_cutoff", ["per-element cutoffs replaced it"]),
    ("fine_tune", ["wrong number of values"]),
    ("fine_tune a.txt a.restart 2", ["at most 1"]),
    ("version 3", ["NEP4"]),
    ("version 5", ["NEP4"]),
    ("model_type 1", ["only potentials"]),
    ("mode 2", ["only potentials"]),
    ("model_type 4", ["at most 3"]),
    ("charge_mode 1", ["only 0"]),
    ("charge_mode 2 1", ["only 0"]),
    ("vdw 1", ["only 0"]),
    ("charge_vdw 1", ["only 0"]),
    ("prediction 2", ["at most 1"]),
    ("import_q_scaler -1", ["at least 0"]),
    ("output_descriptor 3", ["at most 2"]),
    ("save_potential 1000", ["wrong number of values"]),
    ("save_potential -1 0 0", ["at least 0"]),
    ("save_potential 1 2 0", ["at most 1"]),
    ("output_interval 0", ["at least 1"]),
    ("seed -1", ["at least 0"]),
    ("shared_base 2", ["at most 1"]),
    ("freeze nothing", ["descriptor or networks"]),
    ("freeze networks", ["for fine_tune alone"]),
    ("new_elements Xx", ["element symbol"]),
    ("new_elements C", ["for fine_tune alone"]),
    ("valid_ratio 1", ["below 1"]),
    ("early_stop -1", ["at least 0"]),
    ("seed 4294967296", ["whole number"]),
    ("generation -1", ["at least 0"]),
    ("generation 10000001", ["at most 10000000"]),
    ("generation 1e5", ["whole number"]),
    ("epoch auto", ["whole number"]),
    ("batch 0", ["at least 1"]),
    ("batch_atoms 0", ["at least 1"]),
    ("batch 3\nbatch_atoms 16", ["batch_atoms 16", "keep one"]),
    ("batch 5 2", ["at most 1"]),
    ("learning_rate 0.01", ["wrong number of values", "start stop"]),
    ("learning_rate 0 0", ["above 0"]),
    ("learning_rate 2 0", ["at most 1"]),
    ("warmup -1", ["at least 0"]),
    ("weight_decay -1", ["at least 0"]),
    ("optimizer sgd", ["adamw, adam or muon"]),
    ("optimizer AdamW", ['did you mean "adamw"?']),
    ("loss_form mae", ["mse or rmse"]),
    ("max_grad_norm 0", ["above 0"]),
    ("ema 1", ["below 1"]),
    ("lambda_e -1", ["at least 0"]),
    ("lambda_f -1", ["at least 0"]),
    ("lambda_v -1", ["at least 0"]),
    ("lambda_1 -1", ["at least 0"]),
    ("lambda_2 -1", ["at least 0"]),
    ("lambda_shear -1", ["at least 0"]),
    ("lambda_q -1", ["at least 0"]),
    ("lambda_z -1", ["at least 0"]),
    ("type_weight 1", ["1 values", "2 elements"]),
    ("type_weight 1 2 3", ["3 values", "2 elements"]),
    ("population 9", ["at least 10"]),
    ("population 201", ["at most 200"]),
    ("sigma0 0.2", ["at most 0.1"]),
    ("initial_para 0.05", ["at least 0.1"]),
    ("atomic_v 2", ["at most 1"]),
]


@pytest.mark.parametrize("lines, parts", MISTAKES)
def test_mistakes_name_file_and_line_and_quote_it(read, tmp_path, lines, parts):
    message = message_of(read, TYPE + lines + "\n")
    *above, faulty = lines.split("\n")
    place = f"{tmp_path / 'nep.in'}, line {2 + len(above)}: "
    assert message.startswith(f'{place}"{faulty}": '), message
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    "line, parts",
    [
        ("type 2 te Pb", ['"te"', 'did you mean "Te"?']),
        ("type 2 TE Pb", ['did you mean "Te"?']),
        ("type 2 Te Cm", ['"Cm" is not an element symbol from H to Pu']),
        ("type 3 Te Pb", ["2 elements follow, not 3"]),
        ("type 1 Te Pb", ["2 elements follow, not 1"]),
        ("type 2 Te Te", ["Te is there twice"]),
        ("type Te Pb", ['"Te" is not a whole number', "n El1"]),
        ("type 2", ["wrong number of values"]),
        ("type 95 H", ["at most 94"]),
    ],
)
def test_mistakes_in_type(read, tmp_path, line, parts):
    message = message_of(read, "neuron 10\n" + line)
    assert message.startswith(f'{tmp_path / "nep.in"}, line 2: "{line}": '), message
    assert all(part in message for part in parts), message


def test_type_missing(read):
    assert 'no line begins with "type"' in message_of(read, "# type 2 Te Pb\nneuron 10\n")


def test_file_missing_or_not_text(read, tmp_path):
    for path in (tmp_path / "missing" / "nep.in", tmp_path):
        with pytest.raises(UserError, match="cannot be read"):
            read_nep_in(path)
    assert "line 2: not UTF-8" in message_of(read, TYPE.encode() + b"neuron \xff")
    assert "line 1: not UTF-8" in message_of(read, TYPE.encode("utf-16"))


def test_long_lines_are_quoted_short(read):
    assert len(message_of(read, TYPE + "neuron " + "1 " * 10000)) < 500


@pytest.mark.parametrize(
    "zbl, parts",
    [
        ("1 2 3", ["zbl.in", "3 numbers", "takes 30", "3 pairs of 2 elements"]),
        ("", ["0 numbers"]),
        ("1 2\n3 four", ['zbl.in, line 2: "3 four": "four" is not a number']),
        ("nan", ["line 1"]),
    ],
)
def test_mistakes_in_zbl_in(read, zbl, parts):
    message = message_of(read, TYPE + "zbl 2", zbl=zbl)
    assert all(part in message for part in parts), message


# Written and read back ------------------------------------------------------------------------


def numbers(low, high, **options):
    return st.floats(low, high, allow_nan=False, allow_infinity=False, **options)


@st.composite
def models(draw):
    elements = draw(st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=5, unique=True))
    cutoffs = st.tuples(numbers(3, 100), numbers(3, 100)).map(sorted)
    pairs = [draw(cutoffs) for _ in elements]
    if draw(st.booleans()):
        pairs = pairs[:1] * len(elements)
    l_max = draw(st.integers(1, 8))
    possible = [name for name, needed in HIGHER_INVARIANTS.items() if needed <= l_max]
    chosen = draw(st.sets(st.sampled_from(possible)))
    outer = draw(numbers(1, 4))
    factor = draw(st.none() | numbers(0.5, 1e9))
    return ModelSettings(
        elements=tuple(elements),
        angular_cutoff=tuple(pair[0] for pair in pairs),
        radial_cutoff=tuple(pair[1] for pair in pairs),
        n_max=(draw(st.integers(0, 12)), draw(st.integers(0, 90 // (l_max + len(chosen)) - 1)) % 9),
        basis_size=(draw(st.integers(0, 16)), draw(st.integers(0, 12))),
        l_max=l_max,
        invariants=tuple(name for name in HIGHER_INVARIANTS if name in chosen),
        neuron=tuple(draw(st.lists(st.integers(1, 120), min_size=1, max_size=2))),
        zbl=draw(st.sampled_from([None, Zbl(outer / 2, outer, factor)])),
    )


WEIGHTS = numbers(0, 1e300)
STAGES = st.builds(
    Stage,
    generation=st.none() | st.sampled_from([0, 100000, 10**7]),
    epoch=st.none(),
    batch=st.none() | st.sampled_from([1, 999, 1000, 2**31 - 1]),
    learning_rate=st.tuples(numbers(0, 1, exclude_min=True), numbers(0, 1)),
    warmup=st.integers(0, 10**7),
    weight_decay=WEIGHTS,
    optimizer=st.sampled_from(["adamw", "adam"]),
    loss_form=st.sampled_from(["mse", "rmse"]),
    max_grad_norm=numbers(0, 1e300, exclude_min=True),
    ema=numbers(0, 1, exclude_max=True),
    lambda_e=WEIGHTS,
    lambda_f=WEIGHTS,
    lambda_v=WEIGHTS,
    lambda_1=WEIGHTS,
    lambda_2=WEIGHTS,
    lambda_shear=WEIGHTS,
    force_delta=numbers(-1e300, 1e300),
)


@st.composite
def configs(draw):
    model = draw(models())
    stages, weights = [], ()
    for stage in draw(st.lists(STAGES, min_size=1, max_size=3)):
        if draw(st.booleans()):
            stage = replace(stage, generation=None, epoch=draw(st.integers(0, 10**7)))
        if draw(st.booleans()):
            stage = replace(stage, batch=None, batch_atoms=draw(st.integers(1, 10**6)))
        if draw(st.booleans()):
            weights = tuple(draw(numbers(-9, 9)) for _ in model.elements)
        stages.append(replace(stage, type_weight=weights))
    return NepConfig(
        model,
        tuple(stages),
        prediction=draw(st.booleans()),
        import_q_scaler=draw(st.booleans()),
        output_descriptor=draw(st.integers(0, 2)),
        save_potential=draw(st.tuples(st.integers(0, 9999), st.integers(0, 1), st.integers(0, 1))),
        output_interval=draw(st.integers(1, 10**6)),
        seed=draw(st.integers(0, 2**31 - 1)),
    )


@QUICK
@given(config=configs())
def test_written_configurations_read_back_equal(read, config):
    text = to_nep_in(config)
    assert replace(read(text), notes=()) == config
    assert to_nep_in(read(text)) == text


@pytest.mark.parametrize("line", ["generation 100000 exact\nbatch 1000 exact", "generation auto"])
def test_resolved_numbers_survive(read, line):
    config = read(TYPE + "population 50\n" + line)
    assert read(to_nep_in(config)) == replace(config, notes=())


# Any input ------------------------------------------------------------------------------------

TOKENS = st.sampled_from(
    [*KEYWORDS, "mode", "stage", "exact", "auto", "#", "\n", "Te", "Pb", "1", "2", "4", "0.5", "-1"]
    + ["1e999", "nan", "0x", "010", "9" * 5000, "\x00", "\x85", "\u2028", "\ufeff", "Te\u0301"]
) | st.text(string.printable, max_size=5)


@QUICK
@given(
    data=st.binary(max_size=80)
    | st.lists(TOKENS, max_size=30).map(lambda tokens: (TYPE + " ".join(tokens)).encode())
    | st.tuples(st.sampled_from(list(KEYWORDS)), st.lists(TOKENS, max_size=8)).map(
        lambda line: (TYPE + " ".join([line[0], *line[1]])).encode()
    )
)
def test_any_bytes_give_a_configuration_or_a_user_error(read, data):
    try:
        config = read(data)
    except UserError as error:
        assert str(error)
    else:
        assert replace(read(to_nep_in(config)), notes=()) == replace(config, notes=())


@QUICK
@given(
    name=st.sampled_from(list(KEYWORDS)),
    value=TOKENS | st.lists(TOKENS | st.floats() | st.integers(), max_size=4) | st.none(),
)
def test_any_override_gives_a_configuration_or_a_user_error(read, name, value):
    try:
        read(TYPE, {name: value})
    except UserError as error:
        assert str(error)


# Real files -----------------------------------------------------------------------------------


def shared(name):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


@pytest.mark.parametrize(
    "name, elements, zbl",
    [
        ("a_pbte/nep.in", 2, None),
        ("b_alloy/nep_nbmotaw.in", 4, Zbl(1.0, 2.0)),
        ("c_multi/nep_subset32.in", 32, Zbl(1.0, 2.0)),
        ("c_multi/nep_subset89.in", 89, Zbl(1.0, 2.0)),
        ("own_dft/nep.in", 2, None),
    ],
)
def test_real_files(read, name, elements, zbl):
    config = read_nep_in(shared(name))
    assert (len(config.model.elements), config.model.zbl) == (elements, zbl)
    assert config.notes == ()
    assert read(to_nep_in(config)) == config


def test_real_fine_tuning_file():
    config = read_nep_in(shared("a_mos2_finetune/nep.in"))
    assert config.fine_tune == ("nep89_20250409.txt", "nep89_20250409.restart")
    assert config.model.elements == ("Mo", "S") and config.model.neuron == (80,)
