import json
import math
import os
import re
import subprocess
import sys
from enum import StrEnum
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import DictVectorizer
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from belated.features import Features, Transformed
from belated.features.prepared import Prepared
from belated.features.unmatched import UnmatchedCounts

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


# --------------------------------------------------------------------------------------- values


def test_a_small_matrix_by_hand():
    features = Features(numeric=["price"], categorical=["country"], max_norm=3.0)
    x = features.fit_transform(
        [{"price": 0, "country": "NO"}, {"price": 5, "country": "SE"}, {"price": 20}]
    )
    # Three blocks: everything is multiplied by 3 / sqrt(3).
    by_hand = np.array([[-1, 1, 0, 1], [-0.5, 0, 1, 1], [1, 0, 0, 1]]) * math.sqrt(3)
    np.testing.assert_allclose(x, by_hand, rtol=1e-15)
    assert features.names == ["price", "country=NO", "country=SE", "intercept"]
    assert features.dim == 4
    assert x.dtype == np.float64
    assert x.flags.c_contiguous


def test_names_of_every_kind_of_block():
    features = Features(
        numeric=["price"],
        categorical=["ad"],
        hashed={"user": 2},
        interactions=[("ad", "user"), ("price", "ad")],
    ).fit(ROWS)
    assert features.names == [
        "price",
        *("ad=a", "ad=b"),
        *("user#0", "user#1"),
        *("ad=a * user#0", "ad=a * user#1", "ad=b * user#0", "ad=b * user#1"),
        *("price * ad=a", "price * ad=b"),
        "intercept",
    ]
    assert features.dim == len(features.names)


@pytest.mark.parametrize(
    "pair", [("country", "ad"), ("user", "price"), ("ad", "user"), ("price", "price")]
)
def test_an_interaction_is_the_kronecker_product_of_its_blocks(pair):
    options = {
        "price": {"numeric": ["price"]},
        "country": {"categorical": ["country"]},
        "ad": {"categorical": ["ad"]},
        "user": {"hashed": {"user": 5}},
    }

    def block(column):
        return Features(**options[column], intercept=False).fit(ROWS).transform(new)

    new = [*ROWS, {"price": 17.0, "country": "DK", "ad": "a"}, {"price": 12.0, "user": "u9"}]
    features = Features(
        numeric=["price"],
        categorical=["country", "ad"],
        hashed={"user": 5},
        interactions=[pair],
        intercept=False,
    ).fit(ROWS)
    by_hand = [np.kron(a, b) for a, b in zip(*map(block, pair), strict=True)]
    got = features.transform(new)[:, 1 + 2 + 2 + 5 :] * math.sqrt(5)
    np.testing.assert_allclose(got, by_hand, rtol=1e-15)


def test_numbers_beyond_the_range_are_clipped():
    features = Features(numeric=["price"], intercept=False).fit(ROWS)
    x = features.transform([{"price": value} for value in (-1e308, 9.9, 10, 15, 30, 31, 1e308)])
    assert x[:, 0].tolist() == [-1.0, -1.0, -1.0, -0.5, 1.0, 1.0, 1.0]


def test_a_constant_number_becomes_the_clipped_difference():
    features = Features(numeric=["price"], intercept=False).fit([{"price": 7}, {"price": 7}])
    x = features.transform([{"price": value} for value in (-1e308, 6.5, 7, 7.25, 1e308)])
    assert x[:, 0].tolist() == [-1.0, -0.5, 0.0, 0.25, 1.0]


@pytest.mark.parametrize(
    ("low", "middle", "high"),
    [(-1.7e308, 0.0, 1.7e308), (0.0, 1e-307, 2e-307), (1e16, 1e16 + 2, 1e16 + 4)],
)
def test_ranges_at_the_edge_of_floating_point(low, middle, high):
    features = Features(numeric=[0], intercept=False)
    assert features.fit_transform(np.array([[low], [middle], [high]])).tolist() == [[-1], [0], [1]]


@pytest.mark.parametrize("seen", [[[0.0], [1e-300]], [[-1.7e308], [-1.7e308]]])
def test_a_number_too_far_away_for_floating_point_is_clipped(seen):
    features = Features(numeric=[0], intercept=False).fit(np.array(seen))
    assert features.transform([{0: 1.7e308}]).tolist() == [[1.0]]


def test_a_range_too_narrow_to_halve_counts_as_constant():
    features = Features(numeric=[0], intercept=False)
    assert features.fit_transform(np.array([[0.0], [5e-324]])).tolist() == [[0.0], [5e-324]]
    assert features.transform([{0: 0.5}]).tolist() == [[0.5]]


def test_numbers_may_be_of_any_real_type():
    features = Features(numeric=[0], intercept=False).fit(np.array([[-256], [256]]))
    values = [-128, -128.0, np.int8(-128), np.float32(-128), Fraction(-128)]
    assert features.transform([{0: value} for value in values]).tolist() == [[-0.5]] * 5


def test_an_unseen_category_and_a_missing_key_are_all_zeros():
    features = Features(categorical=["ad"], hashed={"user": 4}, intercept=False).fit(ROWS)
    assert features.transform([{"ad": "c"}, {}]).tolist() == [[0.0] * 6] * 2


def test_categories_of_different_types_stay_apart_and_equal_numbers_do_not():
    features = Features(categorical=["c"], intercept=False)
    values = [1, True, "1", None, 0.5, "None", 0, False]
    assert (features.fit_transform([{"c": value} for value in values]) == np.eye(8)).all()
    reloaded = through_json(features)
    Colour = StrEnum("Colour", [("ONE", "1")])
    same = [(1.0, 0), (np.int64(1), 0), (np.bool_(True), 1), (np.str_("1"), 2), (Colour.ONE, 2)]
    for value, position in [*same, (np.float32(0.5), 4), (-0.0, 6), (np.bool_(False), 7)]:
        assert np.flatnonzero(reloaded.transform([{"c": value}])).tolist() == [position]


def test_the_hash_does_not_change():
    features = Features(hashed={"user": 64}, intercept=False)
    values = ["u1", "u2", "bjørk", 1, "1", True, None, 0.5]
    x = features.fit_transform([{"user": value} for value in values])
    position = np.abs(x).argmax(axis=1)
    assert list(zip(position.tolist(), x.sum(axis=1).tolist(), strict=True)) == [
        (44, 1),
        (62, -1),
        (4, 1),
        (59, 1),
        (14, -1),
        (58, -1),
        (57, -1),
        (17, -1),
    ]
    assert (np.abs(x).sum(axis=1) == 1.0).all()


def test_the_hash_is_the_same_in_another_process():
    code = (
        "from belated.features import Features;"
        "rows = [{'u': f'user {i}'} for i in range(50)];"
        "x = Features(hashed={'u': 16}).fit_transform(rows);"
        "print(x.nonzero()[1].tolist(), x.sum())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_hashing_fills_all_buckets_with_both_signs():
    x = Features(hashed={"u": 4}, intercept=False).fit_transform([{"u": i} for i in range(400)])
    for sign in (-1, 1):
        counts = (x == sign).sum(axis=0)  # 50 expected, standard deviation 6.6
        assert (counts > 20).all()
        assert (counts < 80).all()


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


@given(rows, rows, st.booleans(), st.floats(1e-100, 1e100))
def test_no_row_is_longer_than_max_norm(seen, new, intercept, max_norm):
    features = all_kinds(intercept=intercept, max_norm=max_norm)
    features.fit([ROWS[0], *seen])
    for x in (features.transform(seen), features.transform(new)):
        assert np.isfinite(x).all()
        assert x.shape[1] == features.dim == len(features.names)
        assert (np.linalg.norm(x / max_norm, axis=1) <= BOUND).all()


def test_the_norm_bound_is_reached():
    x = all_kinds(max_norm=2.5).fit_transform(ROWS)
    assert np.linalg.norm(x[[0, 2]], axis=1) == pytest.approx([2.5, 2.5], rel=1e-12)


def test_many_blocks_keep_the_bound():
    k = 20_000
    x = Features(numeric=range(k)).fit_transform(np.vstack([np.zeros(k), np.ones(k)]))
    assert math.sqrt(math.fsum(x[1] ** 2)) <= BOUND


# ------------------------------------------------------------------------------------ round trip


@given(rows, rows)
def test_a_reloaded_map_is_the_same_to_the_last_bit(seen, new):
    features = all_kinds(max_norm=0.1).fit([ROWS[0], *seen])
    reloaded = through_json(features)
    assert reloaded.names == features.names
    assert reloaded.transform(new).tobytes() == features.transform(new).tobytes()
    assert reloaded.to_dict() == features.to_dict()


def test_int_columns_come_back_as_ints():
    rows = [{0: 1.0, "0": "x", 1: 5}, {0: 2.0, "0": "y", 1: 6}]
    features = Features(
        numeric=[np.int64(0)],
        categorical=["0"],
        hashed={1: 3},
        interactions=[(np.int64(0), "0")],
    ).fit(rows)
    assert (through_json(features).transform(rows) == features.transform(rows)).all()
    assert through_json(features).to_dict() == features.to_dict()


def test_an_unfitted_map_comes_back_unfitted():
    reloaded = through_json(all_kinds())
    with pytest.raises(ValueError, match="call fit first"):
        reloaded.transform(ROWS)
    assert (reloaded.fit_transform(ROWS) == all_kinds().fit_transform(ROWS)).all()


def test_the_dict_is_a_copy():
    features = all_kinds().fit(ROWS)
    before = features.transform(ROWS)
    d = features.to_dict()
    reloaded = Features.from_dict(d)
    d["numeric"].append("age")
    d["fitted"]["ranges"][0][1] = -1e9
    d["fitted"]["categories"][0][1].reverse()
    for copy in (features, reloaded):
        assert (copy.transform(ROWS) == before).all()
        assert copy.to_dict()["fitted"] == all_kinds().fit(ROWS).to_dict()["fitted"]


# -------------------------------------------------------------------------------- kinds of rows


class ArrowTable:
    def to_pylist(self):
        return ROWS


@pytest.mark.parametrize(
    "table",
    [pd.DataFrame(ROWS), pl.DataFrame(ROWS), ArrowTable(), tuple(ROWS), (row for row in ROWS)],
    ids=["pandas", "polars", "arrow", "tuple", "generator"],
)
def test_tables_agree_with_dicts(table):
    x = all_kinds().fit_transform(table)
    assert x.tobytes() == all_kinds().fit_transform(ROWS).tobytes()


@pytest.mark.parametrize("dtype", [np.int64, np.float32, object])
def test_arrays_agree_with_dicts(dtype):
    array = np.array([[1, 5, 9], [2, 6, 9], [3, 5, 8]], dtype)
    features = Features(numeric=[0], categorical=[1], hashed={2: 4}, interactions=[(0, 1)])
    x = features.fit_transform(array)
    assert x.tolist() == features.transform([dict(enumerate(r)) for r in array.tolist()]).tolist()
    assert features.names[:3] == ["0", "1=5", "1=6"]


@pytest.mark.parametrize(
    "context",
    [
        {"country": "NO", "hour": 3},
        [{"country": "NO"}, {"country": "NO"}, {"country": "NO"}],
        pd.DataFrame({"country": ["NO"] * 3}),
    ],
    ids=["shared", "rows", "pandas"],
)
def test_context_is_as_good_as_columns_of_the_rows(context):
    features = all_kinds().fit(ROWS)
    actions = [{k: v for k, v in row.items() if k != "country"} for row in ROWS]
    whole = [{**row, "country": "NO"} for row in ROWS]
    assert (features.transform(actions, context) == features.transform(whole)).all()
    refitted = all_kinds().fit_transform(actions, context)
    assert (refitted == all_kinds().fit(actions, context).transform(whole)).all()


# ------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"numeric": ["a"], "categorical": ["a"]}, ValueError, "column 'a' is listed twice"),
        ({"numeric": [1, 1]}, ValueError, "column 1 is listed twice"),
        ({"categorical": ["a"], "hashed": {"a": 2}}, ValueError, "column 'a' is listed twice"),
        ({"numeric": "price"}, TypeError, "numeric = 'price': expected a list"),
        ({"numeric": 3}, TypeError, "numeric = 3: expected a list"),
        ({"categorical": [1.5]}, TypeError, "categorical has column 1.5: expected a str or an int"),
        ({"categorical": [True]}, TypeError, "categorical has column True"),
        ({"hashed": ["user"]}, TypeError, r"hashed = \['user'\]: expected a dict"),
        ({"hashed": {"user": 0}}, ValueError, r"hashed\['user'\] = 0: expected a whole number, 1"),
        ({"hashed": {"user": 2.5}}, TypeError, r"hashed\['user'\] = 2.5"),
        (
            {"numeric": ["a"], "interactions": [("a", "b")]},
            ValueError,
            r"interactions\[0\] = \('a', 'b'\): expected a pair of the columns \['a'\]",
        ),
        ({"numeric": ["a"], "interactions": [("a",)]}, ValueError, r"interactions\[0\] = \('a',\)"),
        ({"numeric": ["a"], "interactions": ["a"]}, ValueError, r"interactions\[0\] = 'a'"),
        (
            {"numeric": ["a", "b"], "interactions": [("a", "b"), ("b", "a")]},
            ValueError,
            r"interactions\[1\] = \('b', 'a'\): expected every pair listed once",
        ),
        ({"intercept": False}, ValueError, "intercept = False: expected True, or a column"),
        ({"max_norm": 0}, ValueError, "max_norm = 0"),
        ({"max_norm": math.inf}, ValueError, "max_norm = inf"),
        ({"max_norm": "1"}, TypeError, "max_norm = '1'"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        Features(**options)


GOOD = {"price": 1.0, "ad": "a", "user": 1}
BAD_ROWS = [
    ([], None, ValueError, "actions has no rows"),
    (np.zeros((0, 3)), None, ValueError, "actions has no rows"),
    (np.zeros(3), None, ValueError, r"actions has shape \(3,\): expected a 2-d array"),
    (GOOD, None, TypeError, "actions = .*: expected a list of dicts"),
    (7, None, TypeError, "actions = 7: expected a list of dicts"),
    ([GOOD, [1.0, 2.0]], None, TypeError, r"actions\[1\] = \[1.0, 2.0\]: expected a dict"),
    (pd.Series([1.0]), None, TypeError, r"actions\[0\] = 1.0: expected a dict"),
    ([GOOD, {"ad": "a"}], None, ValueError, "column 'price' in row 1 = None: expected a finite"),
    *(
        ([GOOD, GOOD | {"price": bad}], None, ValueError, f"column 'price' in row 1 = {shown}: exp")
        for bad, shown in [
            (None, "None"),
            (math.nan, "nan"),
            (-math.inf, "-inf"),
            ("12", "'12'"),
            (True, "True"),
            (np.bool_(True), "np.True_"),
            (1j, "1j"),
            (10**400, "10+[.]+"),
        ]
    ),
    *(
        ([GOOD, GOOD | {column: bad}], None, ValueError, f"column {column!r} in row 1 = {shown}: e")
        for column in ("ad", "user")
        for bad, shown in [
            ([1], r"\[1\]"),
            ({}, "{}"),
            ((1, 2), r"\(1, 2\)"),
            (math.nan, "nan"),
            (math.inf, "inf"),
            (b"a", "b'a'"),
            (np.datetime64("2024-01-01"), r"np.datetime64\('2024-01-01'\)"),
        ]
    ),
    ([GOOD], {"ad": "b"}, ValueError, "key 'ad' is in actions and context"),
    ([{}, {"x": 1}], [{"x": 1}, {"x": 1}], ValueError, "key 'x' in row 1 is in actions and contex"),
    ([GOOD], [{}, {}], ValueError, "rows of context = 2: expected 1, one for each action"),
    ([GOOD], [], ValueError, "context has no rows"),
    ([GOOD], 7, TypeError, "context = 7: expected a list of dicts"),
    ([GOOD], ["x"], TypeError, r"context\[0\] = 'x': expected a dict"),
]


@pytest.mark.parametrize(("actions", "context", "error", "message"), BAD_ROWS)
def test_bad_rows_are_refused_and_change_nothing(actions, context, error, message):
    features = Features(numeric=["price"], categorical=["ad"], hashed={"user": 3}).fit(ROWS)
    before = features.to_dict(), features.names
    for method in (features.fit, features.transform, features.fit_transform):
        with pytest.raises(error, match=message):
            method(actions, context)
    assert (features.to_dict(), features.names) == before


@pytest.mark.parametrize("options", [{"categorical": ["contry"]}, {"hashed": {"contry": 3}}])
def test_a_column_that_no_row_has_is_refused_in_fit(options):
    features = Features(**options)
    with pytest.raises(ValueError, match=r"'contry' is in no row: expected one of .*'country'"):
        features.fit(ROWS)
    with pytest.raises(ValueError, match="call fit first"):
        features.transform(ROWS)


@pytest.mark.parametrize("features", [all_kinds(), Transformed(StandardScaler())])
@pytest.mark.parametrize("use", [lambda f: f.dim, lambda f: f.names, lambda f: f.transform(ROWS)])
def test_use_before_fit_is_refused(features, use):
    with pytest.raises(ValueError, match="call fit first"):
        use(features)


def test_a_dict_of_another_kind_is_refused():
    scaler = Transformed(StandardScaler()).fit(np.eye(2))
    with pytest.raises(ValueError, match="kind = 'transformed': expected 'features'"):
        Features.from_dict(scaler.to_dict())
    with pytest.raises(ValueError, match="kind = 'features': expected 'transformed'"):
        Transformed.restore(all_kinds().to_dict(), StandardScaler())


# ---------------------------------------------------------------------------------- Transformed


def test_column_transformer_on_a_data_frame():
    frame = pd.DataFrame(ROWS)
    transformer = ColumnTransformer(
        [
            ("one_hot", OneHotEncoder(handle_unknown="ignore"), ["country", "ad"]),
            ("scaled", StandardScaler(), ["price"]),
        ]
    )
    features = Transformed(transformer, max_norm=2.0)
    x = features.fit_transform(frame)
    z = math.sqrt(1.5)  # prices 10, 20, 30, standardised: -z, 0, z
    by_hand = np.array([[1, 0, 1, 0, -z], [0, 1, 0, 1, 0], [1, 0, 0, 1, z]])
    np.testing.assert_allclose(x, by_hand * 2.0 / math.sqrt(3.5), rtol=1e-12)
    assert features.dim == 5
    assert features.names[-1] == "scaled__price"


def test_dict_vectorizer_is_sparse_and_takes_context():
    features = Transformed(DictVectorizer())
    actions, context = [{"ad": "a"}, {"ad": "b"}], {"price": 3.0}
    x = features.fit_transform(actions, context)
    np.testing.assert_allclose(x, np.array([[1, 0, 3], [0, 1, 3]]) / math.sqrt(10), rtol=1e-15)
    assert features.names == ["ad=a", "ad=b", "price"]
    assert (features.transform(pl.DataFrame(actions), context) == x).all()
    with pytest.raises(ValueError, match="key 'ad'"):
        features.transform(actions, {"ad": "a"})


def test_standard_scaler_on_arrays_is_linear_within_and_shrunk_beyond():
    scaler = StandardScaler()
    features = Transformed(scaler, max_norm=0.5).fit(np.array([[-3.0, 0.0], [3.0, 2.0]]))
    assert scaler.mean_.tolist() == [0.0, 1.0]
    x = features.transform(np.array([[3.0, 2.0], [1.5, 1.5], [300.0, 1.0], [0.0, 1.0]]))
    half = 0.5 / math.sqrt(2)
    np.testing.assert_allclose(
        x, [[half, half], [half / 2, half / 2], [0.5, 0], [0, 0]], atol=1e-15
    )
    assert x.dtype == np.float64
    assert x.flags.c_contiguous


def test_a_transformer_without_names_gets_numbers():
    assert Transformed(FunctionTransformer()).fit(np.eye(2)).names == ["x0", "x1"]


finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e307, max_value=1e307)


@given(arrays(np.float64, (3, 4), elements=finite), arrays(np.float64, (5, 4), elements=finite))
def test_no_transformed_row_is_longer_than_max_norm(seen, new):
    features = Transformed(FunctionTransformer(), max_norm=3.0).fit(seen)
    for x in (features.transform(seen), features.transform(new)):
        assert np.isfinite(x).all()
        assert (np.linalg.norm(x, axis=1) <= 3.0 * BOUND).all()


@pytest.mark.parametrize("huge", [1e200, 1e307])
def test_a_huge_outlier_keeps_its_direction(huge):
    features = Transformed(FunctionTransformer()).fit(np.eye(2) * 1e-200)
    np.testing.assert_allclose(features.transform([[3 * huge, 4 * huge]]), [[0.6, 0.8]], rtol=1e-15)


def test_all_zeros_in_fit_do_not_divide_by_zero():
    features = Transformed(FunctionTransformer()).fit(np.zeros((2, 2)))
    assert features.transform([[0.0, 0.0], [0.0, 0.25], [0.0, 9.0]]).tolist() == [
        [0.0, 0.0],
        [0.0, 0.25],
        [0.0, 1.0],
    ]


def test_restore_takes_the_fitted_transformer():
    frame = np.array([[1.0, 2.0], [4.0, 3.0], [0.0, 7.0]])
    features = Transformed(StandardScaler(), max_norm=0.7).fit(frame)
    d = json.loads(json.dumps(features.to_dict()))
    assert d.keys() == {"kind", "max_norm", "scale", "dim", "transformer"}
    restored = Transformed.restore(d, features.transformer)
    assert restored.transform(frame * 2).tobytes() == features.transform(frame * 2).tobytes()
    with pytest.raises(TypeError, match="expected a StandardScaler"):
        Transformed.restore(d, FunctionTransformer())
    wider = Transformed.restore(d, StandardScaler().fit(np.eye(3)))
    with pytest.raises(ValueError, match="columns from transformer = 3: expected 2, as in fit"):
        wider.transform(np.eye(3))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda rows: np.array([[1.0, 0.0], [1.0, np.nan]]), "row 1 from transformer = .*nan"),
        (lambda rows: np.zeros(3), r"shape from transformer = \(3,\)"),
        (lambda rows: np.zeros((3, 0)), r"shape from transformer = \(3, 0\)"),
        (lambda rows: np.full((1, 4), 1.7e308), "largest norm in fit = inf"),
    ],
)
def test_bad_output_of_a_transformer_is_refused_and_changes_nothing(output, message):
    transformer = FunctionTransformer()
    features = Transformed(transformer).fit(np.eye(2))
    before = features.to_dict()
    transformer.func = output
    with pytest.raises(ValueError, match=message):
        features.fit(np.eye(2))
    assert features.to_dict() == before


def test_max_norm_of_transformed_is_checked():
    with pytest.raises(ValueError, match="max_norm = -1"):
        Transformed(StandardScaler(), max_norm=-1)


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


# ---------------------------------------------------------------------------- what becomes zeros


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


def test_a_map_without_these_options_has_the_dict_it_always_had():
    d = Features(categorical=["ad"]).fit([{"ad": "a"}]).to_dict()
    assert set(d) == {
        *("kind", "numeric", "categorical", "hashed", "interactions", "intercept", "max_norm"),
        "fitted",
    }
    assert set(d["fitted"]) == {"ranges", "categories"}
