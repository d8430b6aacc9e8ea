"""Other libraries in the league, each with the settings its documentation advises for this problem.

The docstring of a peer states its settings; pages print it. A peer that cannot play in a world
raises ``CannotPlayError`` with the reason.
"""

import math
from collections.abc import Callable
from inspect import getdoc
from typing import Any

from belated.experiments.league.players import OfLines, OfVectors, Player
from belated.peers import BayesianBandits, ContextualBandits, MABWiser, River
from belated.peers.adapter import library
from belated.worlds.shops.shop import Shop

WIDE = 500  # features, from which on a peer that can is told to work with sparse matrices


class CannotPlayError(ValueError):
    """A peer cannot play in a world; the message says why."""


def bayesianbandits_glm(world: Shop) -> Player:
    """BayesianGLM() with ThompsonSampling(): prior N(0, I), five steps of Newton's method a batch.

    NormalRegressor(alpha=1, beta=1/variance) where rewards are amounts. One model of raw one-hot
    features (LipschitzContextualAgent); sparse=True from 500 features on.
    """
    bandits, sparse = library("bayesianbandits"), world.dim >= WIDE
    if world.family == "bernoulli":
        return OfVectors(BayesianBandits(bandits.BayesianGLM(sparse=sparse)), world)
    beta = 1.0 / noise(world) ** 2
    return OfVectors(BayesianBandits(bandits.NormalRegressor(1.0, beta, sparse=sparse)), world)


def bayesianbandits_eb(world: Shop) -> Player:
    """EmpiricalBayesGLM() with ThompsonSampling(): one prior variance for all features, learnt.

    EmpiricalBayesNormalRegressor(alpha=1, beta=1/variance) where rewards are amounts. Features and
    agent as for bayesianbandits-glm.
    """
    bandits, sparse = library("bayesianbandits"), world.dim >= WIDE
    if world.family == "bernoulli":
        return OfVectors(BayesianBandits(bandits.EmpiricalBayesGLM(sparse=sparse)), world)
    beta = 1.0 / noise(world) ** 2
    learner = bandits.EmpiricalBayesNormalRegressor(1.0, beta, sparse=sparse)
    return OfVectors(BayesianBandits(learner), world)


def vw_squarecb(world: Shop) -> Player:
    """--cb_explore_adf --squarecb, one namespace per column, -q for the pairs that matter."""
    return OfLines("--squarecb", world)


def vw_bag(world: Shop) -> Player:
    """--cb_explore_adf --bag 5, one namespace per column, -q for the pairs that matter."""
    return OfLines("--bag 5", world)


def mabwiser_linucb(world: Shop) -> Player:
    """LinUCB(alpha=s, l2_lambda=1), one linear model of raw one-hot features; s: sd of a reward."""
    mab = library("mabwiser.mab")
    policy = mab.LearningPolicy.LinUCB(alpha=noise(world))
    return OfVectors(MABWiser(mab.MAB(["any"], policy)), world)


def mabwiser_linucb_tuned(world: Shop) -> Player:
    """LinUCB(alpha=s/4, l2_lambda=1): mabwiser-linucb with a quarter of its exploration.

    Chosen on other copies of the shop than those of the page, as the default was.
    """
    mab = library("mabwiser.mab")
    policy = mab.LearningPolicy.LinUCB(alpha=noise(world) / 4.0)
    return OfVectors(MABWiser(mab.MAB(["any"], policy)), world)


def mabwiser_lints(world: Shop) -> Player:
    """LinTS(alpha=s, l2_lambda=1), a linear model of the visitor per action; s: sd of a reward."""
    mab = library("mabwiser.mab")
    policy = mab.LearningPolicy.LinTS(alpha=noise(world))
    arms = list(range(lasting_actions(world)))
    return OfVectors(MABWiser(mab.MAB(arms, policy), shared=of_visitor(world)), world)


def river_linucb(world: Shop) -> Player:
    """LinUCBDisjoint(alpha=s), a linear model of the visitor per action; s: sd of a reward."""
    lasting_actions(world)
    policy = library("river.bandit").LinUCBDisjoint(alpha=noise(world))
    return OfVectors(River(policy, shared=of_visitor(world)), world)


def contextualbandits_linucb(world: Shop) -> Player:
    """LinUCB(alpha=s), a linear model of the visitor per action, in doubles; s: sd of a reward.

    beta_prior=((1, 1/rate), 2) and ucb_from_empty=False, which its page advises where rewards are
    rare: an action is drawn around the base rate until it has two rewards of each kind.
    """
    online = library("contextualbandits.online", "contextualbandits")
    settings = {**_of_contextualbandits(world), "use_float": False, "ucb_from_empty": False}
    policy = online.LinUCB(lasting_actions(world), alpha=noise(world), **settings)
    return OfVectors(ContextualBandits(policy, shared=of_visitor(world)), world)


def contextualbandits_lints(world: Shop) -> Player:
    """LinTS(v_sq=s^2, sample_from="ci"), a linear model of the visitor per action.

    s: sd of a reward; beta_prior as for contextualbandits-linucb. With coefficients drawn, which is
    its default, it hardly learnt in other copies of these worlds.
    """
    online = library("contextualbandits.online", "contextualbandits")
    settings = {**_of_contextualbandits(world), "v_sq": noise(world) ** 2, "sample_from": "ci"}
    policy = online.LinTS(lasting_actions(world), **settings)
    return OfVectors(ContextualBandits(policy, shared=of_visitor(world)), world)


def _of_contextualbandits(world: Shop) -> dict[str, Any]:
    """Returns settings of both; the visitor's features hold the constant already."""
    if world.family != "bernoulli":
        raise CannotPlayError("it learns from rewards of 0 and 1")
    return {"fit_intercept": False, "beta_prior": ((1.0, 1.0 / world.rate), 2)}


PEERS: dict[str, Callable[[Shop], Player]] = {
    "bayesianbandits-glm": bayesianbandits_glm,
    "bayesianbandits-eb": bayesianbandits_eb,
    "vw-squarecb": vw_squarecb,
    "vw-bag": vw_bag,
    "mabwiser-linucb": mabwiser_linucb,
    "mabwiser-linucb-tuned": mabwiser_linucb_tuned,
    "mabwiser-lints": mabwiser_lints,
    "river-linucb": river_linucb,
    "contextualbandits-linucb": contextualbandits_linucb,
    "contextualbandits-lints": contextualbandits_lints,
}


def settings_of(peer: str) -> str:
    """Returns the settings of a peer in words, in one line."""
    return " ".join((getdoc(PEERS[peer]) or "").split())


def library_of(peer: str) -> str:
    """Returns the name of the library that a peer comes from, as it is installed and imported."""
    first = peer.split("-")[0]
    return {"vw": "vowpalwabbit"}.get(first, first)


def noise(world: Shop) -> float:
    """Returns the standard deviation of a reward at the base rate: what a linear peer is told."""
    return float(getattr(world, "noise", math.sqrt(world.rate * (1.0 - world.rate))))


def of_visitor(world: Shop) -> list[int]:
    """Returns the features that all actions of a visit share: the visitor's, and the intercept."""
    shared = [set(group) <= set(world.of_visitor) for group in world.groups]
    places = [range(*world.starts[g : g + 2]) for g, yes in enumerate(shared) if yes]
    return [place for group in places for place in group] + [world.dim - 1]


def lasting_actions(world: Shop) -> int:
    """Returns the number of actions, if all are always on offer; raises otherwise."""
    if len(world.offered(0)) < world.items:
        raise CannotPlayError("it has a model per action, and actions come and go")
    return world.items
