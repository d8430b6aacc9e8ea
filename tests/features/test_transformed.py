"""A fitted transformer of another library as a feature map."""

import json
import math

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

from belated import Bandit, Bernoulli
from belated.features import Transformed
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.policies import AdaptiveThompson
from support.feature_rows import BOUND, ROWS


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


# ------------------------------------------------------------------------- without a bound


ADS = [{"ad": "a", "price": 3.0}, {"ad": "b", "price": 4.0}]


def raw_rows(features, rows):
    """Rows as the features of a bandit with the default policy make them."""
    return Bandit(family=Bernoulli(), features=features, seed=1).features.transform(rows)


def test_the_default_gets_the_rows_as_they_are():
    features = Transformed(DictVectorizer()).fit(ADS)
    assert raw_rows(features, [*ADS, {"price": 300.0}]).tolist() == [
        [1.0, 0.0, 3.0],
        [0.0, 1.0, 4.0],
        [0.0, 0.0, 300.0],
    ]
    assert features.transform(ADS).max() < 1.0  # the object that was given stays as it was
    for policy in ("delayed-ofu-glm", "thompson"):  # they check norms
        bandit = Bandit(family=Bernoulli(), policy=policy, features=features, seed=1)
        assert bandit.features.transform(ADS).max() < 1.0
        assert bandit.decide([*ADS, {"price": 300.0}]).id == 1


def test_groups_and_a_constant():
    features = Transformed(DictVectorizer(), groups={"ad": 2, "price": 1}, intercept=True).fit(ADS)
    assert features.groups == {"ad": 2, "price": 1, "intercept": 1}
    assert features.names == ["ad=a", "ad=b", "price", "intercept"]
    assert features.dim == 4
    assert raw_rows(features, ADS)[:, -1].tolist() == [1.0, 1.0]
    assert np.linalg.norm(features.transform(ADS), axis=1).max() <= 1.0 + 1e-12
    bandit = Bandit(family=Bernoulli(), features=features, seed=1)
    assert bandit._learner.state.fit.learnt.tolist() == [1.0, 1.0, 0.0]
    assert Transformed(DictVectorizer(), intercept=True).fit(ADS).groups["features"] == 3
    with pytest.raises(ValueError, match="expected sizes that sum to 3, the number of features"):
        Bandit(
            family=Bernoulli(), features=Transformed(DictVectorizer(), groups={"ad": 2}).fit(ADS)
        )
    with pytest.raises(TypeError, match="groups = 'ad': expected a dict"):
        Transformed(DictVectorizer(), groups="ad")


@pytest.mark.parametrize("options", [{}, {"groups": {"ad": 2, "price": 1}, "intercept": True}])
def test_unbounded_features_in_files_and_logs(tmp_path, options):
    features = Transformed(DictVectorizer(), **options).fit(ADS)
    bandit = Bandit(family=Bernoulli(), features=features, seed=1)
    bandit.learn(bandit.decide(ADS).id, 1.0)
    bandit.save(tmp_path / "file")
    again = Bandit.load(tmp_path / "file", features=features.transformer)
    assert again.features.to_dict() == bandit.features.to_dict()
    assert again.fingerprint() == bandit.fingerprint()
    ledger = MemoryLedger()
    for _ in range(2):  # made, and opened again
        durable = Bandit(family=Bernoulli(), features=features, ledger=ledger, seed=1)
        durable.decide(ADS)
    assert durable._learner.groups == features.groups
    assert (durable.features.transform(ADS) == raw_rows(features, ADS)).all()


def test_rows_that_a_log_has_bounded_stay_bounded():
    features = Transformed(DictVectorizer()).fit(ADS)
    spec = Spec.of(3, Bernoulli(), AdaptiveThompson(), features=features.to_dict())
    ledger = MemoryLedger()
    Replica(ledger, features={"bandit": features}).configure("bandit", spec)
    bandit = Bandit(family=Bernoulli(), features=features, ledger=ledger)
    assert bandit.features.transform(ADS).max() < 1.0
