"""Every shared check, on everything in the registry."""

from functools import partial

import numpy as np
import pytest

from belated import Bandit, checks, registry
from belated.checks.policies import check_learns_from_rewards
from belated.commands.warm import COMMON
from belated.families import Bernoulli, Binomial, Gaussian, Poisson
from belated.model.plain_policy import is_own
from belated.model.protocols import claims_set, refusal, refuse_family
from belated.worlds.delays import Empirical, Informative, Lomax, Pareto, Scaled, Uniform

# Rounds after which learning shows: of policies that learn slowly, and one of slow plain Python
ROUNDS = {"odaaf": 20_000, "delayed-elimination": 8000, "opse": 8000, "ofuglb": 150}
# Policies that take seconds for a check in plain Python: each decision passes over all rewards
LONG = ("ofuglb", "polya-gamma")
# Policies that check_learns_from_rewards is not asked of, and why
NOT_ASKED = {
    "uniform": "the baseline that never learns",
    "glm-ucb": "the width of its theorem: uniform play for thousands of rounds",
    "ofulog-r": "as glm-ucb; ofuglb, of which it is a case, is asked",
    "policy-elimination": "a toy",
}


def families():
    kinds = [registry.load(registry.FAMILIES, name)() for name in registry.FAMILIES]
    return [*kinds, Gaussian(sd=0.3), Binomial(trials=4)]


def delays():
    kinds = [registry.load(registry.DELAYS, name)() for name in registry.DELAYS]
    late = Empirical([5.0, 0.5, 2.0, np.inf])
    hours = Scaled(Uniform(3.0), factor=2.5, shift=1.5)
    kinds += [Lomax(3.0), Pareto(3.0), Empirical([3.0, 1.0]), late, hours]
    return [*kinds, Informative(Uniform(3.0)), Scaled(Informative(Uniform(3.0)))]


def policies_and_checks():
    """The common policies with all families, the others with four very different ones.

    All but the first two families that a policy accepts are slow, but for those of the default, and
    so are policies that take long.
    """
    some = [Gaussian(sd=0.3), Bernoulli(), Binomial(trials=4), Poisson()]
    for name in registry.POLICIES:
        kind, accepted = registry.load(registry.POLICIES, name), 0
        for family in families() if name in COMMON else some:
            policy = registry.example_policy(kind, family)
            if not refusal(policy, family):
                accepted += 1
                many = accepted > 2 and name != registry.DEFAULT_POLICY
                marks = pytest.mark.slow if many or name in LONG else ()
                listed = checks.OWN_POLICY_CHECKS if is_own(policy) else checks.POLICY_CHECKS
                for check in listed:
                    label = f"{name}-{family!r}-{check.__name__}"
                    if check is not check_learns_from_rewards:
                        yield pytest.param(policy, family, check, id=label, marks=marks)
                    elif name not in NOT_ASKED:
                        asked = partial(check, rounds=ROUNDS.get(name, 300))
                        yield pytest.param(policy, family, asked, id=label, marks=marks)


@pytest.mark.parametrize(("policy", "family", "check"), list(policies_and_checks()))
def test_policy(policy, family, check):
    check(policy, family)


@pytest.mark.parametrize("name", NOT_ASKED)
def test_only_policies_that_fail_are_not_asked(name):
    policy = registry.example_policy(registry.load(registry.POLICIES, name), Bernoulli())
    with pytest.raises(AssertionError, match=r"% of that of uniform play"):
        check_learns_from_rewards(policy, Bernoulli())


@pytest.mark.parametrize("name", registry.POLICIES)
def test_refusals(name):
    """A policy that refuses a family says so before the first round; none refuses all."""
    refused = 0
    for family in families():
        policy = registry.example_policy(registry.load(registry.POLICIES, name), family)
        if refusal(policy, family):
            refused += 1
            with pytest.raises(ValueError, match=type(policy).__name__):
                refuse_family(policy, family) if is_own(policy) else policy.resolve(family, 3, 1.0)
    assert refused < len(families())


@pytest.mark.parametrize("name", registry.POLICIES)
def test_bandits_refuse_policies_in_plain_python(name):
    policy = registry.example_policy(registry.load(registry.POLICIES, name), Gaussian())
    if is_own(policy):
        message = rf"{type(policy).__name__} is in plain Python .* simulations .* only; expected"
        with pytest.raises(TypeError, match=message):
            Bandit(2, family=Binomial(1), policy=policy)


@pytest.mark.parametrize("check", checks.FAMILY_CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("family", families(), ids=repr)
def test_family(family, check):
    check(family)


@pytest.mark.parametrize("check", checks.DELAY_CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("delay", delays(), ids=repr)
def test_delay(delay, check):
    check(delay)


@pytest.mark.parametrize("check", checks.ENVIRONMENT_CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", registry.ENVIRONMENTS)
def test_environment(name, check):
    kind = registry.load(registry.ENVIRONMENTS, name)
    check(kind([[0.6, 0.8, 0.0], [0.0, 0.0, 0.5]] if name == "fixed-arms" else 3), 3)


def test_unknown_name():
    with pytest.raises(ValueError, match=r"family = 'gausian': .*; did you mean gaussian\?"):
        registry.load(registry.FAMILIES, "gausian")
    with pytest.raises(ValueError, match=r"family = 'xyz': expected one of .*poisson$"):
        registry.load(registry.FAMILIES, "xyz")


def test_what_is_proved_is_claimed():
    """A policy under this heading has a confidence set, or its page states a bound on regret."""
    earns, proved, _ = registry.which_policy()
    assert not set(earns.policies) & set(proved.policies)
    for name in proved.policies:
        kind = registry.load(registry.POLICIES, name)
        assert claims_set(kind()) or "regret" in str(kind.__doc__), name
    for name in earns.policies:
        assert not claims_set(registry.load(registry.POLICIES, name)()), name
