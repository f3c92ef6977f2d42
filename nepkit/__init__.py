"""nepkit trains NEP4 interatomic potentials in PyTorch."""
