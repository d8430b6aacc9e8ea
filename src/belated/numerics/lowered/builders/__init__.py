"""Loops written in the compiler's own terms. The only package that imports llvmlite.

Each function has the name of the plain one that it stands for, and takes a builder first.
"""
