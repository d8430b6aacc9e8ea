"""Off-policy evaluation: arrays in, numbers out; no files, no bandits."""
