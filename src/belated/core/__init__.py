"""What everything else stands on: compiled kernels, state, and the functions one extends."""
