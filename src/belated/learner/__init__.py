"""A policy at work, and its file."""
