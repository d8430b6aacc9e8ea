"""Rows as lists of their entries: the same rows, from features and from prepared actions."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belated import Bandit, Bernoulli
from belated.core.sparse import dense
from belated.features import Features
from belated.features.prepared import Prepared
from belated.features.unmatched import UnmatchedCounts
from naive.features import row_of
from support.feature_rows import through_json

SEEN = [
    {"price": 3.0, "age": 30.0, "ad": "a", "land": "NO", "likes": ["x", "y"], "topics": ["p"]},
    {"price": 12.0, "age": None, "ad": "b", "land": "SE", "likes": [], "topics": ["q", "r"]},
    {"price": 80.0, "age": 30.0, "ad": "c", "land": "NO", "likes": ["z"], "topics": ["r"]},
    {"price": 5.0, "age": 61.0, "ad": "a", "land": "NO", "likes": ["x"], "topics": ["p"]},
]
KINDS = {"numeric": ["price", "age"], "categorical": ["ad", "land"], "tags": ["likes", "topics"]}
COLUMNS = [column for columns in KINDS.values() for column in columns]

some_tags = st.lists(st.sampled_from("xyzpqr?"), max_size=4)
values = {
    "price": st.floats(0.5, 100.0),
    "age": st.none() | st.just(float("nan")) | st.floats(0.0, 99.0),
    "ad": st.sampled_from("abc?"),
    "land": st.sampled_from(["NO", "SE", "??"]),
    "likes": some_tags,
    "topics": some_tags,
}


@st.composite
def features_of_all_options(draw):
    pairs = [(a, b) for k, a in enumerate(COLUMNS) for b in COLUMNS[k:]]
    return KINDS | {
        "missing": ["age"],
        "interactions": draw(st.lists(st.sampled_from(pairs), max_size=4, unique=True)),
        "intercept": draw(st.booleans()),
        "other": draw(st.lists(st.sampled_from(["ad", "land", "topics"]), unique=True)),
        "scale": draw(
            st.dictionaries(
                st.sampled_from(["price", "age"]),
                st.sampled_from(["linear", "log", "log1p", "quantile"]),
            )
        ),
    }


@st.composite
def actions_and_context(draw):
    """Columns of the actions, some without them, and columns of the context."""
    own = draw(st.sets(st.sampled_from(COLUMNS)))
    must = {"price"}
    spaces = [
        st.fixed_dictionaries(
            {column: values[column] for column in columns & must},
            optional={column: values[column] for column in columns - must},
        )
        for columns in (own, set(COLUMNS) - own)
    ]
    return draw(st.lists(spaces[0], min_size=1, max_size=4)), draw(spaces[1])


@given(features_of_all_options(), actions_and_context(), st.sampled_from([1.0, 0.3, None]))
@settings(max_examples=150)
def test_rows_are_those_of_the_definition(options, rows, max_norm):
    actions, context = rows
    features = Features(**options, max_norm=max_norm or 1.0).fit(SEEN)
    features = features if max_norm else features.unbounded()
    by_hand = [row_of(options, SEEN, {**context, **action}, max_norm) for action in actions]
    x = features.transform(actions, context)
    np.testing.assert_allclose(x, by_hand, rtol=1e-12, atol=1e-15)
    assert max_norm is None or (np.linalg.norm(x, axis=1) <= max_norm * (1 + 1e-12)).all()
    assert x.shape[1] == features.dim == len(features.names) == sum(features.groups.values())


@given(features_of_all_options(), actions_and_context(), st.booleans())
@settings(max_examples=150)
def test_every_way_to_a_row_gives_the_same_bytes(options, rows, bounded):
    actions, context = rows
    features = Features(**options).fit(SEEN)
    features = features if bounded else features.unbounded()
    expected = features.transform(actions, context)
    met, merged = features.unmatched.counts, [{**context, **action} for action in actions]
    prepared = Prepared(features, actions)
    ways = {
        "sparse": lambda: dense(features.sparse_rows(actions, context), features.dim),
        "prepared": lambda: prepared.transform(context),
        "prepared, sparse": lambda: dense(prepared.sparse_rows(context), features.dim),
        "again": lambda: dense(prepared.sparse_rows(context), features.dim),
        "a context each": lambda: features.transform(actions, [context] * len(actions)),
        "no context": lambda: features.transform(merged),
        "read back": lambda: through_json(features).transform(actions, context),
    }
    for name, way in ways.items():
        features.unmatched = UnmatchedCounts()
        assert way().tobytes() == expected.tobytes(), name
        assert features.unmatched.counts == met or name == "read back", name


def shop(banners=20):
    rows = [
        {"banner": f"b{k}", "device": f"d{k % 3}", "country": f"c{k % 5}"} for k in range(banners)
    ]
    options = {"categorical": ["banner", "device", "country"]}
    return Features(**options, interactions=[("banner", "device")]).fit(rows)


def test_a_row_has_an_entry_for_each_block():
    rows = shop().unbounded().sparse_rows([{"banner": "b2"}], {"device": "d1", "country": "c4"})
    assert rows.columns.tolist() == [[2, 20 + 1, 23 + 4, 28 + 2 * 3 + 1, 88]]
    assert rows.values.tolist() == [[1.0] * 5]
    assert rows.columns.dtype == np.int32
    assert rows.columns.flags.writeable
    assert rows.values.flags.writeable


def test_rows_of_wide_features_are_short():
    features = shop(banners=1000)
    actions = [{"banner": f"b{k}"} for k in range(7)]
    for rows in (
        features.sparse_rows(actions, {"device": "d0", "country": "c0"}),
        Prepared(features, actions).sparse_rows({"device": "d0", "country": "c0"}),
    ):
        assert rows.columns.shape == rows.values.shape == (7, 5)
        assert rows.columns.max() == features.dim - 1 == 4008


def test_equal_values_of_different_types_are_told_apart_when_they_come_again():
    features = Features(categorical=["c"], intercept=False)
    features.fit([{"c": value} for value in (1, True, "1")])
    prepared = Prepared(features, [{}])
    for _ in range(2):
        for place, value in [(0, 1), (1, True), (2, "1"), (0, 1.0), (1, np.bool_(True))]:
            one_hot = np.eye(3)[[place]].tolist()
            assert features.transform([{"c": value}]).tolist() == one_hot
            assert features.transform([{}], {"c": value}).tolist() == one_hot
            assert prepared.transform({"c": value}).tolist() == one_hot


def test_equal_tags_of_different_types_are_told_apart_when_they_come_again():
    features = Features(tags=["t"], intercept=False).fit([{"t": [1, True, "1"]}])
    for _ in range(2):
        for place, value in enumerate((1, True, "1")):
            assert features.transform([{"t": [value]}]).tolist() == np.eye(3)[[place]].tolist()
            assert features.transform([{}], {"t": [value]}).tolist() == np.eye(3)[[place]].tolist()


def test_values_that_no_column_uses_are_of_no_effect():
    features = Features(categorical=["ad"], ignore=["session", "meta"]).fit([{"ad": "a"}])
    for session in range(5):
        context = {"session": session, "meta": {"list": [session]}}
        assert features.unbounded().transform([{"ad": "a"}], context).tolist() == [[1.0, 1.0]]
        features.transform([{"ad": "a"}], context)
    layout = features.layout(("session", "meta"))
    assert layout._context._remembered.cache_info().currsize == 1


def test_what_is_remembered_is_forgotten_by_another_fit_and_not_copied():
    features = Features(categorical=["ad"], intercept=False).fit([{"ad": "a"}, {"ad": "b"}])
    assert features.transform([{"ad": "b"}]).tolist() == [[0.0, 1.0]]
    copies = copy.deepcopy(features), pickle.loads(pickle.dumps(features))
    features.fit([{"ad": "b"}])
    assert features.transform([{"ad": "b"}]).tolist() == [[1.0]]
    for other in copies:
        assert other.transform([{"ad": "b"}]).tolist() == [[0.0, 1.0]]


def test_contexts_of_many_keys_are_not_all_remembered():
    features = shop()
    prepared = Prepared(features, [{"banner": "b1"}])
    for k in range(100):
        context = {"device": "d1", "country": "c1", f"key {k}": 1}
        expected = features.transform([{"banner": "b1"}], context)
        assert prepared.transform(context).tobytes() == expected.tobytes()
    assert len(features._layouts) <= 16
    assert len(prepared._stacks) <= 16


def test_groups_are_the_blocks_in_their_order():
    assert shop().groups == {
        "banner": 20,
        "device": 3,
        "country": 5,
        "banner * device": 60,
        "intercept": 1,
    }
    rows = [{"intercept": 1.0, 0: 2.0, "0": 3.0, "": 4.0}]
    assert Features(numeric=["intercept", 0, "0", ""]).fit(rows).groups == {
        "intercept'": 1,
        "0": 1,
        "0'": 1,
        "": 1,
        "intercept": 1,
    }


def test_a_column_called_intercept_is_no_constant():
    """The prior of the constant is wide and never learnt; the column's is neither."""
    rows = [{"intercept": name} for name in "abc"]
    for constant in (True, False):
        features = Features(categorical=["intercept"], intercept=constant).fit(rows)
        fit = Bandit(family=Bernoulli(), features=features, seed=1)._learner.state.fit
        assert fit.learnt.tolist() == [1.0, 0.0][: 1 + constant]


# ----------------------------------------------------------------------------------- no bound


def test_features_without_a_bound_keep_everything_else():
    features = shop()
    features.transform([{"banner": "b1"}], {"device": "d9", "country": "c1"})
    raw = features.unbounded()
    assert raw.unmatched.counts == features.unmatched.counts
    raw.transform([{"banner": "b1"}], {"device": "d8", "country": "c1"})
    assert len(features.unmatched.counts) == 1  # the copy counts for itself
    assert (raw.names, raw.groups) == (features.names, features.groups)
    assert raw.to_dict() == features.to_dict() | {"bounded": False}
    assert "bounded" not in features.to_dict()
    assert raw.unbounded().to_dict() == through_json(raw).to_dict() == raw.to_dict()
    assert raw.with_categories({"banner": ["new"]}).to_dict()["bounded"] is False


def test_features_without_a_bound_can_be_fitted():
    raw = Features(categorical=["ad"]).unbounded()
    assert raw.fit_transform([{"ad": "a"}, {"ad": "b"}]).tolist() == [[1, 0, 1], [0, 1, 1]]


def test_a_dict_says_in_true_or_false_whether_rows_are_bounded():
    with pytest.raises(TypeError, match="bounded = 'no': expected True or False"):
        Features.from_dict(shop().to_dict() | {"bounded": "no"})
