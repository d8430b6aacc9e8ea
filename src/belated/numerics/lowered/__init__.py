"""The loops that take most of the time, written in Python and in the compiler's own terms.

The modules here hold the plain functions; both versions are called by their names. ``builders/``
has the version for kernels, where the machine can do better than a compiler makes of a loop.
"""
