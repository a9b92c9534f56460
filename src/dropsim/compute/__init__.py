"""Computation: compiled kernels, threads, random numbers."""
