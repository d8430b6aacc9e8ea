"""The HTTP toolkit of the service.

It imports no bandit; keys, paths and log lines name bandits and subjects.
"""
