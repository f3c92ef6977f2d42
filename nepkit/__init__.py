"""nepkit trains NEP4 interatomic potentials, the neuroevolution potentials of GPUMD, in PyTorch.

    from nepkit import train_nep, predict_dataset
    train_nep("run_directory")                       # nep.in, train.xyz -> nep.txt
    predict_dataset("nep.txt", "test.xyz", out="predictions")

On the command line: ``nepkit train RUN_DIR``, ``nepkit predict nep.txt data.xyz --out DIR``.
Units: eV, Å, eV/Å; virial in eV, positive when compressed.
"""

from .errors import UserError
from .predict import predict_dataset
from .train import Interrupted, train_nep

__version__ = "0.1.0"
__all__ = ["Interrupted", "UserError", "predict_dataset", "train_nep"]
