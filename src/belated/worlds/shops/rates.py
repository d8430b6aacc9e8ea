"""Shops with other base rates."""

from belated.worlds.shops.shop import Shop


class Rare(Shop):
    """The shop with a base rate of 0.5 per cent."""

    rate = 0.005


class Frequent(Shop):
    """The shop with a base rate of 30 per cent."""

    rate = 0.3
