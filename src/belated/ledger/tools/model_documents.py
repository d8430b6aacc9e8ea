"""A bandit as a document that decides elsewhere, and back: the scorer is the bandit itself.

The digest is that of the bytes of the model as they stand in the document, so that whoever holds
the document can check it in any language, however that language writes numbers.
"""

import base64
import binascii
from hashlib import sha256

import msgspec
import numpy as np

from belated.core.arguments import wrong
from belated.core.times import iso
from belated.core.types import Matrix, Vector
from belated.estimators.laplace.fit import WAITING, LaplaceFit
from belated.ledger.fold import Fold
from belated.ledger.spec import Spec
from belated.model.state import OBSERVED
from belated.wire import Model, ModelDocument

SCORABLE = ("adaptive-thompson", "greedy")
WIDEST_MODEL = 1_024  # features: their covariance is 4 MB


class _Sealed(msgspec.Struct):
    """A document whose model is not read yet."""

    digest: str
    model: msgspec.Raw


def document_of(fold: Fold, now: int) -> ModelDocument:
    """Returns the model document of a bandit, or raises where it cannot decide elsewhere."""
    refuse_unscorable(fold.spec)
    learner = fold.learner
    model = Model(
        format=2,
        bandit=fold.name,
        time=iso(now),
        version=fold.version,
        settings=fold.spec.as_kept(),
        actions=list(fold.actions.listed.items()),
        n_observed=learner.n_observed,
        theta=_text(learner.state.theta),
        covariance=_text(_upper_half(learner.state.fit)),
    )
    return ModelDocument(_digest(msgspec.json.encode(model)), model)


def refuse_unscorable(spec: Spec) -> None:
    """Raises where a bandit with these settings cannot decide elsewhere."""
    if spec.policy["type"] not in SCORABLE:
        raise wrong("policy", spec.policy["type"], f"{' or '.join(SCORABLE)}, to decide elsewhere")
    if spec.mode == "shadow":
        raise wrong("mode", spec.mode, "'live': in shadow mode the caller plays")
    if spec.holdout > 0.0:
        raise wrong("holdout", spec.holdout, "0: a model document holds nobody out")
    if spec.sticky is not None:
        raise wrong("sticky", spec.sticky, "None: a model document remembers no decisions")
    if spec.features is not None and spec.features.get("kind") not in ("features", "vectors"):
        raise wrong("features", spec.features.get("kind"), "Features, or vectors")
    if spec.dim > WIDEST_MODEL:
        raise wrong("dim", spec.dim, f"{WIDEST_MODEL} at most, to decide elsewhere")


def read_document(content: bytes) -> tuple[str, Model]:
    """Returns digest and model of a document, checked, or raises."""
    try:
        sealed = msgspec.json.decode(content, type=_Sealed)
        model = msgspec.json.decode(sealed.model, type=Model)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the document is not a model of belated: {error}") from None
    found = _digest(bytes(sealed.model))
    if found != sealed.digest:
        raise wrong("digest", sealed.digest, f"{found}, that of the model: it was changed")
    return found, model


def fold_of(model: Model) -> Fold:
    """Returns the bandit that a model describes, without its history: it can decide, not learn."""
    spec = msgspec.convert(model.settings, Spec)
    refuse_unscorable(spec)
    fold = Fold(model.bandit, spec)
    listed = dict(model.actions)
    fold.actions.check(listed, spec.bound)
    fold.actions.restore(listed)
    fold.version = model.version
    state, dim = fold.learner.state, spec.dim
    state.theta[:] = _numbers("theta", model.theta, dim)
    state.counts[OBSERVED] = model.n_observed
    if isinstance(state.fit, LaplaceFit):
        numbers = _numbers("covariance", model.covariance, dim * (dim + 1) // 2)
        state.fit.S[np.triu_indices(dim)] = numbers
    return fold


def _upper_half(fit: object) -> Vector:
    """Returns the upper half of the posterior covariance row by row; empty where there is none."""
    if not isinstance(fit, LaplaceFit):
        return np.zeros(0)
    waiting = int(fit.scalars[WAITING])
    terms = fit.terms[:waiting]
    covariance: Matrix = fit.S - (fit.scales[:waiting, np.newaxis] * terms).T @ terms
    return covariance[np.triu_indices(len(covariance))]


def _digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def _text(numbers: Vector) -> str:
    return base64.b64encode(numbers.astype("<f8").tobytes()).decode()


def _numbers(name: str, text: str, count: int) -> Vector:
    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), "<f8")
    except (binascii.Error, ValueError):
        numbers = np.zeros(0)
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise wrong(name, f"{text[:40]}...", f"base64 of {count} finite float64 numbers")
    return numbers.astype(np.float64)
