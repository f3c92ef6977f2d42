"""Fused kernels for CPUs: every pair is read once a pass and nothing per pair is kept but forces."""
