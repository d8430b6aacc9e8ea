"""Shops with other base rates."""

from belated.worlds.shops.shop import DAY, Shop


class Rare(Shop):
    """The shop with a base rate of 0.5 per cent."""

    decisions = 2 * DAY
    rate = 0.005


class Frequent(Shop):
    """The shop with a base rate of 30 per cent."""

    decisions = DAY
    rate = 0.3
