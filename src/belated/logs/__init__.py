"""From a log of decisions and rewards to an answer: how late rewards come, and what follows."""
