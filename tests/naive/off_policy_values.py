"""An off-policy estimate with rows counted anew, written as its definition."""


def value(terms, rewards, counts):
    """Returns the estimate with every row counted so many times."""
    above = terms.base + terms.gain * rewards.earned - terms.loss * rewards.counted
    below = terms.size + terms.size_counted * rewards.counted
    return float((counts * above).sum() / (counts * below).sum())
