"""Interfaces of policies, families, delays and estimators, and the steps that they share."""
