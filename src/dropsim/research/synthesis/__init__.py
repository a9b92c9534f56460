"""Data sets of perturbed motion: scenes drawn from a distribution, simulated, judged and written as sharded Parquet."""
