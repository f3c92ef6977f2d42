"""nepkit trains NEP4 interatomic potentials, the neuroevolution potentials of GPUMD, in PyTorch.

    from nepkit import train_nep, predict_dataset
    train_nep("run_directory")                       # nep.in, train.xyz -> nep.txt
    predict_dataset("nep.txt", "test.xyz", out="predictions")

On the command line: ``nepkit train RUN_DIR``, ``nepkit predict nep.txt data.xyz --out DIR``.
Units: eV, Å, eV/Å; virial in eV, positive when compressed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .calculator import NEPCalculator, predict_structures
    from .errors import UserError
    from .predict import predict_dataset, predict_dataset_sharded
    from .train import Interrupted, train_nep, train_nep_sharded

__version__ = "0.1.0"
__all__ = [
    "Interrupted",
    "NEPCalculator",
    "UserError",
    "predict_dataset",
    "predict_dataset_sharded",
    "predict_structures",
    "train_nep",
    "train_nep_sharded",
]

_HOMES = {
    "NEPCalculator": "nepkit.calculator",
    "Interrupted": "nepkit.train",
    "UserError": "nepkit.errors",
    "predict_dataset": "nepkit.predict",
    "predict_dataset_sharded": "nepkit.predict",
    "predict_structures": "nepkit.calculator",
    "train_nep": "nepkit.train",
    "train_nep_sharded": "nepkit.train",
}


def __getattr__(name: str):
    # Loaded when first asked for: `nepkit -h` need not wait for torch.
    if name not in _HOMES:
        raise AttributeError(f"module 'nepkit' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
