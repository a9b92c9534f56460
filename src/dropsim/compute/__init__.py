"""How numbers are computed: compiled kernels, threads, random numbers."""
