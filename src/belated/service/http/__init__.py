"""The HTTP toolkit of the service. It knows nothing of bandits."""
