"""How kernels are compiled into each other and kept on disk: the parts of Numba that may change."""
