"""Values that no feature stands for become zeros: they are counted and named."""

import re

import numpy as np
import pytest

from belated.features import Features
from belated.features.prepared import Prepared
from belated.features.unmatched import UnmatchedCounts
from support.feature_rows import through_json


def shop_features(**options):
    features = Features(categorical=["banner", "country"], hashed={"user": 4}, **options)
    return features.fit(
        [
            {"banner": "summer", "country": "France", "user": 1, "id": 1},
            {"banner": "winter", "country": "Norway", "user": 2, "id": 2},
        ]
    )


BANNERS = [{"banner": "summer", "id": 1}, {"banner": "winter", "id": 2}]


def test_what_becomes_zeros_is_counted_and_named():
    features = shop_features()
    features.transform(BANNERS, {"country": "France", "user": 3})
    assert features.unmatched.counts == {}  # "id" was in the rows of fit, too
    features.transform(BANNERS, {"country": "Frnace", "user": 3})
    features.transform(BANNERS, {"contry": "France", "user": 3})
    features.transform([*BANNERS, {"banner": "spring", "id": 3}], {"country": "Frnace"})
    assert features.unmatched.counts == {
        ("category", "country", "'Frnace'"): 2,  # calls, not rows
        ("missing", "country", ""): 1,
        ("key", "contry", ""): 1,
        ("category", "banner", "'spring'"): 1,
        ("missing", "user", ""): 1,
    }
    assert [str(what) for what in features.unmatched.counts][:3] == [
        "country = 'Frnace' is not a known category",
        "the column 'country' is missing",
        "no column uses the key 'contry'",
    ]


def test_what_is_left_out_on_purpose_is_not_counted():
    features = shop_features(ignore=["shelf"], optional=["user"])
    features.transform(BANNERS, {"country": "France", "shelf": 7})
    assert features.unmatched.counts == {}
    assert through_json(features).to_dict() == features.to_dict()
    through_json(features).transform(BANNERS, {"country": "France", "shelf": 7})
    array = Features(categorical=[0]).fit(np.array([[1, 2], [3, 4]]))
    array.transform(np.array([[1, 5, 6]]))  # columns of an array have no names to misspell
    assert array.unmatched.counts == {}
    with pytest.raises(ValueError, match="optional = 'shelf': expected one of the columns"):
        Features(categorical=["banner"], optional=["shelf"])


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(
    ("context", "said"),
    [
        (
            {"country": "Frnace", "user": 1},
            "column 'country' = 'Frnace': expected a known category, one of 'France', 'Norway'; "
            "did you mean 'France'?",
        ),
        (
            {"country": "France", "usr": 1, "user": 1},
            "key 'usr': expected a column, one of 'banner', 'country', 'user', or the key named in "
            "ignore=; did you mean 'user'?",
        ),
        (
            None,
            "column 'country' is missing: expected in the action or its context, or named in "
            "optional=",
        ),
    ],
)
def test_strict_features_raise_instead(context, said, prepared):
    features = through_json(shop_features(strict=True))
    with pytest.raises(ValueError, match=re.escape(said)):
        Prepared(features, BANNERS).transform(context) if prepared else features.transform(
            BANNERS, context
        )
    assert features.unmatched.counts == {}


def test_counts_of_what_becomes_zeros_have_a_bound_and_forget_after_an_hour():
    now = 0
    features = shop_features()
    features.unmatched = UnmatchedCounts(clock=lambda: now)
    for k in range(1000):
        features.transform(BANNERS, {"country": f"land {k}", "user": 1, f"key {k}": 1})
    counts = features.unmatched.counts
    assert len(counts) <= 202
    assert sum(counts.values()) == 2000
    assert sum(n for what, n in counts.items() if what.kind == "category") == 1000
    assert sum(features.unmatched.lately().values()) == 2000
    now = 3_600_000_000
    features.transform(BANNERS, {"country": "land 1", "user": 1})
    assert features.unmatched.lately() == {("category", "country", "'land 1'"): 1}
    assert len(features.unmatched._slices) == 1
