"""Prepared actions equal transformed ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belated.features import Features
from belated.features.prepared import Prepared
from belated.features.unmatched import UnmatchedCounts


@given(st.data())
def test_prepared_actions_equal_transformed_ones(data):
    """Same rows, or the same complaint, whatever the actions and contexts."""
    rows = st.fixed_dictionaries(
        {}, optional={"price": st.floats(-5, 20), "ad": st.sampled_from("abz"), "odd": st.just(1)}
    )
    actions = data.draw(st.lists(rows, min_size=1, max_size=4))
    about = st.fixed_dictionaries(
        {},
        optional={
            "hour": st.floats(0, 24),
            "user": st.sampled_from(["u", 1, None, 2.5]),
            "price": st.floats(0, 1),
        },
    )
    context = data.draw(st.none() | about)
    features = Features(
        numeric=["price", "hour"],
        categorical=["ad"],
        hashed={"user": 4},
        interactions=data.draw(
            st.sampled_from(
                [
                    [("price", "ad"), ("hour", "user"), ("hour", "ad"), ("user", "ad")],
                    [("ad", "ad"), ("price", "price"), ("ad", "user")],
                    [("hour", "hour"), ("user", "user"), ("price", "hour")],
                ]
            )
        ),
        intercept=data.draw(st.booleans()),
    )
    features.fit(
        [{"price": 0.0, "ad": "a", "hour": 0, "user": 1}, {"price": 9, "ad": "b", "hour": 24}]
    )
    try:
        expected = features.transform(actions, context)
    except ValueError:
        with pytest.raises(ValueError, match=r"column|key"):
            Prepared(features, actions).transform(context)
    else:
        met, features.unmatched = features.unmatched, UnmatchedCounts()
        assert Prepared(features, actions).transform(context).tobytes() == expected.tobytes()
        assert features.unmatched.counts == met.counts
