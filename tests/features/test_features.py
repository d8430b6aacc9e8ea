"""Feature maps: their values, their norm, the kinds of rows they take, the input they refuse."""

import math
import os
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
from sklearn.preprocessing import StandardScaler

from belated import Bandit
from belated.features import Features, Transformed
from support.feature_rows import BOUND, ROWS, all_kinds, rows, through_json

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


@pytest.mark.parametrize("nothing", [math.nan, np.float32("nan"), pd.NA, pd.NaT])
def test_a_text_that_a_table_lacks_is_none(nothing):
    features = Features(categorical=["c"], hashed={"user": 4}, tags=["likes"])
    rows = [{"c": "x", "user": 1, "likes": ["sea"]}, {"c": None, "user": None, "likes": [None]}]
    lacking = {"c": nothing, "user": nothing, "likes": [nothing]}
    fitted = features.fit([rows[0], lacking]).to_dict()
    assert fitted == through_json(features).to_dict() == features.fit(rows).to_dict()
    assert (features.transform([lacking]) == features.transform([rows[1]])).all()
    assert not features.unmatched.counts
    known = Features(categorical=["c"]).fit([{"c": "x"}])
    assert known.with_categories({"c": [nothing, None]}).names == ["c=x", "c=None", "intercept"]


def test_a_table_of_pandas_with_gaps_teaches_and_decides_as_dicts_with_none():
    dicts = [{"c": "x", "age": 31}, {"c": None, "age": None}, {"c": "y", "age": 58}]
    frame = pd.DataFrame(dicts).astype({"age": "Int64"})  # nan for the text, NA for the number
    features = Features(categorical=["c"], numeric=["age"], missing=["age"])
    assert features.fit(frame).to_dict() == features.fit(dicts).to_dict()
    bandit = Bandit(family="bernoulli", features=features, seed=1)
    again = Bandit(family="bernoulli", features=features, seed=1)
    assert bandit.decide(frame).propensity == again.decide(dicts).propensity
    assert (features.transform(frame) == features.transform(dicts)).all()


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


@pytest.mark.slow
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
            (math.inf, "inf"),
            (b"a", "b'a'"),
            (np.datetime64("2024-01-01"), r"np.datetime64\('2024-01-01'\)"),
        ]
    ),
    ([GOOD], {"ad": "b"}, ValueError, "key 'ad' is in actions and context"),
    ([{}, {"x": 1}], [{"x": 1}, {"x": 1}], ValueError, "key 'x' in row 1 is in actions and contex"),
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


BANNERS = [{"banner": f"b{k}", "price": 5.0 + k, "topics": ["sea", f"t{k % 3}"]} for k in range(20)]
VISITORS = [
    {"device": "phone", "age": 31, "user": 17, "likes": ["snow"]},
    {"device": "desktop", "age": None, "user": 4, "likes": []},
]


def shop(**options):
    return Features(
        numeric=["price", "age"],
        missing=["age"],
        categorical=["banner", "device"],
        hashed={"user": 4},
        tags=["topics", "likes"],
        interactions=[("banner", "device"), ("age", "topics")],
        **options,
    )


@pytest.mark.parametrize(("n", "m"), [(20, 2), (2, 20), (1, 2), (3, 1), (3, 7)])
def test_any_number_of_actions_and_contexts_teach_what_all_their_pairs_teach(n, m):
    visitors = [VISITORS[k % 2] for k in range(m)]
    pairs = [visitor | banner for banner in BANNERS[:n] for visitor in visitors]
    assert shop().fit(BANNERS[:n], visitors).to_dict() == shop().fit(pairs).to_dict()
    turned = shop().fit(visitors, BANNERS[:n])  # a column may be on either side
    assert turned.to_dict() == shop().fit(pairs).to_dict()


def test_quantiles_are_those_of_the_side_that_has_the_column():
    options = {"numeric": ["price", "age"], "scale": {"price": "quantile", "age": "quantile"}}
    visitors = [{"age": age} for age in (18, 31, 44, 70, 71, 90, 91)]
    fitted = Features(**options).fit(BANNERS, visitors).to_dict()["fitted"]
    alone = Features(numeric=["age"], scale={"age": "quantile"}).fit(visitors).to_dict()["fitted"]
    assert dict(fitted["quantiles"])["age"] == dict(alone["quantiles"])["age"]
    assert dict(fitted["quantiles"])["price"][::20] == [5.0, 24.0]


def test_as_many_contexts_as_actions_are_rows_of_pairs_as_ever():
    visitors = [VISITORS[k % 2] for k in range(20)]
    pairs = [visitor | banner for banner, visitor in zip(BANNERS, visitors, strict=True)]
    assert shop().fit(BANNERS, visitors).to_dict() == shop().fit(pairs).to_dict()


def test_keys_of_actions_and_contexts_in_fit_that_no_column_uses_are_known():
    features = Features(categorical=["banner", "device"])
    features.fit(BANNERS, VISITORS).transform(BANNERS, VISITORS[0])
    assert not features.unmatched.counts


@pytest.mark.parametrize(
    ("actions", "contexts", "message"),
    [
        (
            [{"banner": "a"}, {}, {"price": 1.0}],
            [{"price": 2.0}, {}],
            "'price' is in actions and c",
        ),
        (
            BANNERS,
            [{"age": 3}, {"device": "phone"}, {"age": "x"}],
            "'age' in row 2 = 'x': expected",
        ),
        (BANNERS, [{"age": 3}, {"age": None}], "'device' is in no row: expected .*'topics', 'age'"),
    ],
)
def test_sides_that_do_not_fit_are_refused_in_fit(actions, contexts, message):
    features = shop()
    with pytest.raises(ValueError, match=message):
        features.fit(actions, contexts)
    with pytest.raises(ValueError, match="call fit first"):
        features.transform(BANNERS)


@pytest.mark.parametrize("features", [all_kinds(), Transformed(StandardScaler())])
def test_rows_are_pairs_of_an_action_and_its_context(features):
    features.fit(ROWS if isinstance(features, Features) else np.eye(3))
    for method in (features.transform, features.fit_transform):
        with pytest.raises(
            ValueError, match="rows of context = 2: expected 1, one for each action"
        ):
            method([GOOD], [{}, {}])


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


def test_a_map_without_these_options_has_the_dict_it_always_had():
    d = Features(categorical=["ad"]).fit([{"ad": "a"}]).to_dict()
    assert set(d) == {
        *("kind", "numeric", "categorical", "hashed", "interactions", "intercept", "max_norm"),
        "fitted",
    }
    assert set(d["fitted"]) == {"ranges", "categories"}
