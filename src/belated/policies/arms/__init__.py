"""Policies for K arms, in plain Python: queues, counters and dictionaries."""
