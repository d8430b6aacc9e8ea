"""What a log of decisions and rewards says: how late, how many, what is wrong."""
