"""Verdicts on the claims, from results."""
