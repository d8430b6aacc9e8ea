"""Figures and pages, made from results and verdicts."""
