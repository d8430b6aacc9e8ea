"""Rows and feature maps of every kind, for the tests of features."""

import json

import numpy as np
from hypothesis import strategies as st

from belated.features import Features

ROWS = [
    {"price": 10.0, "country": "NO", "ad": "a", "user": "u1"},
    {"price": 20.0, "country": "SE", "ad": "b", "user": "u2"},
    {"price": 30.0, "country": "NO", "ad": "b", "user": "u3"},
]
BOUND = 1.0 + 1e-12


def all_kinds(**options):
    return Features(
        numeric=["price"],
        categorical=["country", "ad"],
        hashed={"user": 8},
        interactions=[("country", "ad"), ("price", "user"), ("user", "user")],
        **options,
    )


def through_json(features):
    return Features.from_dict(json.loads(json.dumps(features.to_dict())))


# ----------------------------------------------------------------------------------------- norm

categories = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(),
    st.floats(allow_nan=False).filter(np.isfinite),
)
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**20), 10**20)
)
rows = st.lists(
    st.fixed_dictionaries(
        {"price": numbers}, optional={"country": categories, "ad": categories, "user": categories}
    ),
    min_size=1,
    max_size=8,
)
