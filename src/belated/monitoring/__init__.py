"""Statistics of a log of decisions and rewards: how late, how many, and alarms in words."""
