"""Columns as people have them: missing numbers, lists, prices and ages, unseen categories."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from belated import Bandit, Bernoulli, DelayedOFUGLM
from belated.features import Features, Unmatched
from belated.features.growing import grown, places_in
from support.feature_rows import through_json

ROWS = [
    {"price": 1.0, "age": 20, "land": "NO", "likes": ["ski", "sea"]},
    {"price": 100.0, "age": None, "land": "SE", "likes": ["sea"]},
    {"price": 10.0, "age": 60, "land": "NO", "likes": []},
]


def raw(**options):
    """Features of ROWS whose values can be read off."""
    return Features(**options, intercept=False).fit(ROWS).unbounded()


# ---------------------------------------------------------------------------- missing numbers


@pytest.mark.parametrize("row", [{"age": None}, {"age": math.nan}, {"age": np.float32("nan")}, {}])
def test_a_missing_number_is_zero_and_an_indicator_says_so(row):
    features = raw(numeric=["age"], missing=["age"])
    assert features.names == ["age", "age=(missing)"]
    assert features.groups == {"age": 2}
    assert features.transform([row, {"age": 30}]).tolist() == [[0.0, 1.0], [-0.5, 0.0]]
    assert features.unmatched.counts == {}


def test_the_indicator_is_part_of_interactions():
    features = raw(
        numeric=["age"], categorical=["land"], missing=["age"], interactions=[("land", "age")]
    )
    assert features.names[4:6] == ["land=NO * age", "land=NO * age=(missing)"]
    assert features.transform([{"land": "SE", "age": None}])[0, 4:].tolist() == [0, 0, 0, 1]


def test_numbers_missing_in_a_table_are_missing():
    frame = pd.DataFrame([{"age": 20.0}, {"age": None}, {"age": 60.0}])
    x = Features(numeric=["age"], missing=["age"], intercept=False).fit_transform(frame)
    assert x.tolist() == [[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


def test_without_the_option_a_missing_number_is_an_error_that_names_it():
    said = "column 'age' in row 1 = None: expected a finite number in every row, or the column in "
    with pytest.raises(ValueError, match=f"{re.escape(said)}missing="):
        Features(numeric=["age"]).fit(ROWS)
    with pytest.raises(ValueError, match=r"column 'age' = 'x': expected a finite number in every"):
        raw(numeric=["age"], missing=["age"]).transform([{"age": "x"}])


# --------------------------------------------------------------------------------------- tags


def test_tags_have_an_entry_each():
    features = raw(tags=["likes"])
    assert features.names == ["likes=ski", "likes=sea"]
    rows = [{"likes": ["sea", "ski"]}, {"likes": ("sea", "sea")}, {"likes": []}]
    assert features.transform(rows).tolist() == [[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]
    assert features.transform([{"likes": np.array(["ski"])}]).tolist() == [[1.0, 0.0]]
    assert features.unmatched.counts == {}


def test_tags_are_a_block_of_norm_one_where_rows_are_bounded():
    features = Features(tags=["likes"]).fit(ROWS)
    x = features.transform([{"likes": ["sea", "ski", "?"]}, {"likes": ["sea", "?"]}])
    assert x[:, :2].ravel() == pytest.approx([0.5, 0.5, 0.0, math.sqrt(0.5)])


def test_unknown_and_missing_tags_are_counted():
    features = raw(tags=["likes"])
    features.transform([{"likes": ["sea", "tea", "tea"]}, {"likes": ["tea"]}, {}])
    assert features.unmatched.counts == {
        Unmatched("category", "likes", "'tea'"): 1,
        Unmatched("missing", "likes"): 1,
    }
    quiet = raw(tags=["likes"], optional=["likes"])
    assert quiet.transform([{}]).tolist() == [[0.0, 0.0]]
    assert quiet.unmatched.counts == {}


def test_strict_features_refuse_an_unknown_tag():
    features = Features(tags=["likes"], strict=True).fit(ROWS)
    with pytest.raises(ValueError, match=r"column 'likes' = 'se': .* did you mean 'sea'\?"):
        features.transform([{"likes": ["sea", "se"]}])
    with pytest.raises(ValueError, match=r"column 'likes' = 'se'"):
        features.check_action({"likes": ["sea", "se"]})


@pytest.mark.parametrize("bad", ["sea", None, 3, {"sea": 1}])
def test_tags_must_be_a_list(bad):
    said = f"column 'likes' in row 1 = {bad!r}: expected a list of categories"
    features = raw(tags=["likes"])
    for method in (features.fit, features.transform, features.sparse_rows):
        with pytest.raises(ValueError, match=re.escape(said)):
            method([{"likes": []}, {"likes": bad}])


def test_tags_must_be_categories():
    with pytest.raises(ValueError, match=r"column 'likes' = \[1\]: expected a str, int, bool"):
        raw(tags=["likes"]).transform([{"likes": [[1]]}])


def test_a_column_without_any_tag_or_number_is_refused_in_fit():
    with pytest.raises(ValueError, match="column 'likes' is in no row"):
        Features(tags=["likes"]).fit([{"likes": []}])
    with pytest.raises(ValueError, match="column 'age' is in no row"):
        Features(numeric=["age"], missing=["age"]).fit([{"age": None}])


# ------------------------------------------------------------------------------------- scales


def scaled(how, numbers, *values):
    features = Features(numeric=["n"], scale={"n": how}, intercept=False)
    features.fit([{"n": number} for number in numbers])
    return features.transform([{"n": value} for value in values])[:, 0].tolist()


def test_a_log_scale_has_even_ratios():
    expected = pytest.approx([-1.0, 0.0, 0.5, 1.0])
    assert scaled("log", [1, 100, 7], 1, 10, 10**1.5, 100) == expected
    assert scaled("log", [1e-300, 1e300], 1.0) == pytest.approx([0.0], abs=1e-15)
    assert scaled("log", [1, 100], -3, 0, 1e-9, 1e9) == [-1.0, -1.0, -1.0, 1.0]
    assert scaled("log", [5, 5], 5, 5 * math.sqrt(math.e), 0) == pytest.approx([0.0, 0.5, -1.0])


def test_a_log1p_scale_takes_zeros():
    assert scaled("log1p", [0, 99], 0, 9, 99, -1) == pytest.approx([-1.0, 0.0, 1.0, -1.0])


def test_a_quantile_scale_has_even_shares():
    numbers = [float(k) ** 3 for k in range(101)]
    expected = pytest.approx([-1.0, -1.0, 0.0, 0.9, 1.0])
    assert scaled("quantile", numbers, -5, 0, 50**3, 95**3, 1e9) == expected
    half = (50**3 + 55**3) / 2  # between two quantiles: linear
    assert scaled("quantile", numbers, half) == pytest.approx([0.05])


def test_a_quantile_scale_of_repeated_numbers_takes_the_middle():
    half_zeros = [0] * 10 + list(range(1, 11))  # 0 is the quantiles 0 to 9 of 20
    assert scaled("quantile", half_zeros, 0, -1, 10) == pytest.approx([-0.55, -0.55, 1.0])
    assert scaled("quantile", [7, 7], 6, 7, 8) == [0.0, 0.0, 0.0]


def test_a_quantile_scale_at_the_edge_of_floating_point():
    far = [-1.7e308, 1.7e308]
    assert scaled("quantile", far, *far, 0.0) == pytest.approx([-1.0, 1.0, 0.0])
    assert all(map(math.isfinite, scaled("quantile", [0.0, 5e-324, 1e-323], 0.0, 5e-324, 1.0)))


@pytest.mark.parametrize(
    ("how", "number", "said"),
    [
        ("log", 0, "column 'price' in row 1 = 0.0: expected above 0 in fit, for scale 'log'"),
        ("log1p", -1, "column 'price' in row 1 = -1.0: expected 0 or more in fit, for scale 'log"),
    ],
)
def test_numbers_without_a_logarithm_are_refused_in_fit(how, number, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Features(numeric=["price"], scale={"price": how}).fit([{"price": 1.0}, {"price": number}])


def test_a_dict_with_a_range_that_has_no_logarithm_is_refused():
    d = Features(numeric=["price"], scale={"price": "log"}).fit(ROWS).to_dict()
    d["fitted"]["ranges"] = [["price", -1.0, 1.0]]
    with pytest.raises(ValueError, match=r"column 'price' = -1.0: expected above 0 in fit"):
        Features.from_dict(d)


# -------------------------------------------------------------------------------------- other


def test_unseen_categories_have_a_bucket_of_their_own():
    features = raw(categorical=["land"], other=["land"])
    assert features.names == ["land=(other)", "land=NO", "land=SE"]
    x = features.transform([{"land": "DK"}, {"land": "SE"}, {}])
    assert x.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert features.unmatched.counts == {
        Unmatched("other", "land", "'DK'"): 1,
        Unmatched("missing", "land"): 1,
    }
    assert str(Unmatched("other", "land", "'DK'")) == "land = 'DK' counts as other"


def test_unseen_tags_have_one_bucket_together():
    features = raw(tags=["likes"], other=["likes"])
    assert features.transform([{"likes": ["tea", "sea", "pie"]}]).tolist() == [[1.0, 0.0, 1.0]]
    assert len(features.unmatched.counts) == 2


def test_what_counts_as_other_is_counted_without_alarm(recwarn):
    features = Features(categorical=["land"], other=["land"], strict=True).fit(ROWS)
    bandit = Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=features)
    for k in range(30):
        bandit.decide([{"land": "NO"}, {"land": f"unseen {k}"}])
    assert len(bandit.unmatched) == 30
    assert not recwarn.list
    assert bandit.features.unmatched.lately() == {}
    with pytest.raises(ValueError, match="key 'lnd': expected a column"):
        bandit.decide([{"land": "unseen", "lnd": "NO"}])


def test_what_counts_as_other_does_not_use_up_the_warnings():
    features = Features(categorical=["land"], other=["land"]).fit(ROWS)
    bandit = Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=features)
    for k in range(30):
        bandit.decide([{"land": f"unseen {k}"}])
    with pytest.warns(UserWarning, match="no column uses the key 'lnd'"):
        bandit.decide([{"land": "NO", "lnd": "NO"}])


# ------------------------------------------------------------------------- growth, files, errors

ALL = {
    "numeric": ["price", "age"],
    "categorical": ["land"],
    "tags": ["likes"],
    "missing": ["age"],
    "scale": {"price": "log", "age": "quantile"},
    "other": ["land", "likes"],
    "interactions": [("land", "likes"), ("age", "land")],
}


@pytest.mark.parametrize("bounded", [True, False])
def test_features_of_all_options_grow(bounded):
    old = Features(**ALL).fit(ROWS)
    old = old if bounded else old.unbounded()
    new = old.with_categories({"land": ["DK"], "likes": ["tea", "sea"]})
    assert [new.names[place] for place in places_in(old, new)] == old.names
    x = np.zeros((len(ROWS), new.dim))
    x[:, places_in(old, new)] = old.transform(ROWS)
    assert x.tobytes() == new.transform(ROWS).tobytes()
    assert grown(old, new).to_dict() == new.to_dict()
    unseen = {"price": 1.0, "land": "DK", "likes": ["tea"]}
    assert new.transform([unseen])[0, new.names.index("land=DK")] > 0.0
    assert new.transform([unseen])[0, new.names.index("land=(other)")] == 0.0


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (Features(**ALL).fit(ROWS).unbounded(), "bounded = False: expected True, as before"),
        (Features(**ALL | {"other": []}).fit(ROWS), r"other = \[\]: expected"),
        (Features(**ALL | {"scale": {}}).fit(ROWS), "scale = {}: expected"),
        (Features(**ALL).fit([*ROWS, ROWS[0] | {"age": 99}]), "quantiles = .*, as before"),
    ],
)
def test_what_is_no_growth_is_refused(new, said):
    with pytest.raises(ValueError, match=f"features: {said}"):
        grown(Features(**ALL).fit(ROWS), new)


def test_all_options_are_kept_in_a_dict():
    features = Features(**ALL).fit(ROWS)
    reloaded = through_json(features)
    assert reloaded.to_dict() == features.to_dict()
    assert reloaded.names == features.names
    assert reloaded.transform(ROWS).tobytes() == features.transform(ROWS).tobytes()
    assert set(ALL) <= set(features.to_dict())
    columns = np.array([[1.0, 5], [2.0, 6]])
    by_number = Features(numeric=[0], categorical=[1], scale={0: "log"}, other=[1]).fit(columns)
    assert through_json(by_number).to_dict() == by_number.to_dict()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (
            {"missing": ["land"]},
            ValueError,
            "missing = 'land': expected one of the numeric",
        ),
        ({"missing": "age"}, TypeError, "missing = 'age': expected a list of columns"),
        ({"other": ["age"]}, ValueError, "other = 'age': expected one of the categorical and tags"),
        ({"tags": ["land"]}, ValueError, "column 'land' is listed twice"),
        ({"tags": "likes"}, TypeError, "tags = 'likes': expected a list of columns"),
        ({"scale": {"land": "log"}}, ValueError, "scale = 'land': expected one of the numeric col"),
        (
            {"scale": {"age": "root"}},
            ValueError,
            r"scale\['age'\] = 'root': expected one of 'linear', 'log', 'log1p', 'quantile'",
        ),
        ({"scale": {"age": ["log"]}}, ValueError, r"scale\['age'\] = \['log'\]: expected one of"),
        (
            {"scale": "log"},
            TypeError,
            "scale = 'log': expected a dict of column to one of",
        ),
    ],
)
def test_bad_options_are_refused(options, error, said):
    with pytest.raises(error, match=said):
        Features(**{"numeric": ["age"], "categorical": ["land"], **options})
