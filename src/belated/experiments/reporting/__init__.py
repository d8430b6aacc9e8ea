"""Figures and pages, made of results and verdicts that are already there."""
