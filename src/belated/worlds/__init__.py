"""The world of a simulated bandit: decision sets, delays, and what is seen of a reward."""
