"""nep.in: GPUMD's keywords and ours, read into one frozen configuration."""

from __future__ import annotations

from dataclasses import dataclass

# Higher invariants after l_max, in the order of nep.in and of the descriptor, with the l they need.
HIGHER_INVARIANTS = {"q222": 2, "q1111": 1, "q112": 2, "q123": 3, "q233": 3, "q134": 4}


@dataclass(frozen=True)
class Zbl:
    """The screened nuclear repulsion: universal, typewise or flexible.

    ``flexible`` holds ten numbers a pair of types t1 <= t2, rows in GPUMD's order
    (inner, outer, a1..a8); the other fields are then 0 and None.
    """

    inner: float  # Å
    outer: float  # Å
    typewise_factor: float | None = None
    flexible: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True)
class ModelSettings:
    """What defines a NEP4 model besides its parameters: the header of a nep.txt."""

    elements: tuple[str, ...]
    radial_cutoff: tuple[float, ...]  # Å, one an element; a pair takes the mean
    angular_cutoff: tuple[float, ...]  # Å, one an element
    n_max: tuple[int, int] = (6, 6)  # radial, angular; functions = n_max + 1
    basis_size: tuple[int, int] = (6, 6)  # radial, angular; functions = basis_size + 1
    l_max: int = 4
    invariants: tuple[str, ...] = ("q222",)  # of HIGHER_INVARIANTS, in that order
    neuron: tuple[int, ...] = (30,)  # one or two hidden layers
    zbl: Zbl | None = None

    @property
    def descriptor_length(self) -> int:
        """Number of descriptor components D."""
        angular = self.l_max + len(self.invariants)
        return self.n_max[0] + 1 + angular * (self.n_max[1] + 1)


@dataclass(frozen=True)
class Stage:
    """How one stage of the training runs. ``None`` for batch or steps: chosen from the data."""

    generation: int | None = None  # steps
    epoch: int | None = None  # passes over the data, instead of generation
    batch: int | None = None  # frames a step
    learning_rate: tuple[float, float] = (0.01, 1e-5)  # start, stop
    warmup: int = 100  # steps
    weight_decay: float = 0.0
    optimizer: str = "adamw"
    loss_form: str = "mse"
    max_grad_norm: float = 1.0
    ema: float = 0.999
    lambda_e: float = 1.0
    lambda_f: float = 1.0
    lambda_v: float = 0.1
    lambda_1: float = 0.0
    lambda_2: float = 0.0
    lambda_shear: float = 1.0
    force_delta: float = 0.0
    type_weight: tuple[float, ...] = ()  # one an element


@dataclass(frozen=True)
class NepConfig:
    """A nep.in, understood."""

    model: ModelSettings
    stages: tuple[Stage, ...] = (Stage(),)
    prediction: bool = False
    import_q_scaler: bool = False
    output_descriptor: int = 0
    save_potential: tuple[int, int, int] = (100000, 1, 0)  # interval, name form, with restart file
    output_interval: int = 100
    seed: int = 0
    notes: tuple[str, ...] = ()  # lines for the log: keywords without effect, numbers replaced
