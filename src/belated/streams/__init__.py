"""Rewards from a stream of Redis or a topic of Kafka into a ledger, or to a service.

Messages are acknowledged when their rewards are committed, so that each is handed in at least once;
a reward that is handed in twice is a duplicate. Together: each counts exactly once.
"""
