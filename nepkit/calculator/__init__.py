"""Potentials at work: the ASE calculator, many structures at once, and torch-sim."""

from .ase import NEPCalculator

__all__ = ["NEPCalculator"]
