"""Verdicts: what results say about each claim."""
