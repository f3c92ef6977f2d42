"""Potentials at work: the ASE calculator, many structures at once, and torch-sim (torchsim.py)."""

from .ase import NEPCalculator
from .batched import predict_structures

__all__ = ["NEPCalculator", "predict_structures"]
