"""Training: from a GPUMD run directory to a nep.txt."""

from .outputs import Errors
from .run import train_nep
from .sharded import train_nep_sharded
from .signals import Interrupted
from .world import LostContact

__all__ = ["Errors", "Interrupted", "LostContact", "train_nep", "train_nep_sharded"]
