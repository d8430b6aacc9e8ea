"""Shops with few or many actions and features."""

from typing import ClassVar

from belated.worlds.shops.shop import DAY, HOUR, Columns, Groups, Shop


class FewBanners(Shop):
    """Five banners and nothing known of a visitor but the device: 24 features."""

    decisions = 2 * DAY
    items = 5
    of_visitor: ClassVar[Columns] = {"device": 3}
    groups: ClassVar[Groups] = {("banner",): 0.5, ("device",): 0.2, ("banner", "device"): 0.4}


class ManyProducts(Shop):
    """Five hundred products by category, brand and price alone, at 5 per cent, an hour late."""

    decisions = DAY // 2
    delay = HOUR
    item, items = "product", 500
    of_item: ClassVar[Columns] = {"category": 10, "brand": 20, "price": 5}
    groups: ClassVar[Groups] = {
        ("category",): 0.5,
        ("brand",): 0.4,
        ("price",): 0.3,
        ("device",): 0.2,
        ("country",): 0.3,
        ("category", "country"): 0.4,
    }
    rate = 0.05


class Wide(Shop):
    """The shop with banner x country and banner x hour as well, at 10 per cent: 1,008 features."""

    decisions = DAY
    of_visitor: ClassVar[Columns] = {"device": 3, "country": 20, "hour": 24}
    groups: ClassVar[Groups] = {
        ("banner",): 0.5,
        ("device",): 0.2,
        ("country",): 0.3,
        ("hour",): 0.2,
        ("banner", "device"): 0.4,
        ("banner", "country"): 0.3,
        ("banner", "hour"): 0.1,
    }
    rate = 0.1
