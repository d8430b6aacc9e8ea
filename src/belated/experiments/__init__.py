"""The experiments of the paper: run, drawn, and each of their claims judged."""
