"""What a simulated bandit plays against: decision sets, delays, and what is seen of a reward."""
