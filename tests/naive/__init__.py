"""Slow and obvious twins of everything the package does quickly. Written from the formulas alone.

Nothing here imports the package; families are given by name.
"""
