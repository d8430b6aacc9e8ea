"""Loops that most of the time is spent in, written in Python and in the compiler's own terms.

The modules here hold the plain functions, under whose names both are called. ``builders/`` says how
a kernel does the same where the machine can do better than a compiler makes of a loop.
"""
