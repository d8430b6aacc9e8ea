"""The holdout: who gets the baseline, so that it can be seen what the bandit is worth.

Assignment is by a hash, so it needs no table, is the same in every process and after every restart,
and can be checked from the log. A subject stays in its group for as long as the share stays; a
larger share keeps those who were held out and adds others. Bandits assign independently of each
other.

Held-out decisions are learnt from like all others: what a model concludes from rewards is given the
actions that were played, whoever chose them.
"""

from hashlib import blake2b


def is_held_out(bandit: str, unit: bytes, share: float) -> bool:
    """Returns whether decisions for a unit are held out.

    Parameters
    ----------
    bandit
        Name of the bandit.
    unit
        The subject of a decision, in UTF-8, or the decision's id where it has no subject.
    share
        Of units that are held out.

    Examples
    --------
    >>> [k for k in range(30) if is_held_out("shop", f"ann-{k}".encode(), 0.1)]
    [11, 16, 25]
    >>> [k for k in range(30) if is_held_out("shop", f"ann-{k}".encode(), 0.2)]
    [2, 10, 11, 13, 15, 16, 19, 20, 25]
    """
    if share <= 0.0:
        return False
    known = bandit.encode() + b"\0" + unit  # no name of a bandit holds a NUL
    digest = blake2b(known, digest_size=8, person=b"belated holdout").digest()
    return int.from_bytes(digest, "big") < share * 2.0**64
