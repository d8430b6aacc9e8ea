"""The foundation of every other room: compiled kernels, checks of arguments, plain data, files."""
