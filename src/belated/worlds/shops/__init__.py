"""Simulated shops with names: visitors in dicts, rates as people have them, rewards that are late.

``belated list worlds`` shows them and ``belated compare --world NAME`` plays in them. Time is
counted in decisions, 5,000 to a day.
"""
