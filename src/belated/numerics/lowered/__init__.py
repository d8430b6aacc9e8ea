"""Loops written in the compiler's own terms. The only package that imports llvmlite."""
