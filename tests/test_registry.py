"""Every shared check, on everything in the registry."""

import numpy as np
import pytest

from belated import checks, registry
from belated.core.protocols import refusal
from belated.delays import Empirical, Informative, Lomax, Pareto, Scaled, Uniform
from belated.families import Binomial, Gaussian


def families():
    kinds = [registry.load(registry.FAMILIES, name)() for name in registry.FAMILIES]
    return [*kinds, Gaussian(sd=0.3), Binomial(trials=4)]


def delays():
    kinds = [registry.load(registry.DELAYS, name)() for name in registry.DELAYS]
    late = Empirical([5.0, 0.5, 2.0, np.inf])
    hours = Scaled(Uniform(3.0), factor=2.5, shift=1.5)
    kinds += [Lomax(3.0), Pareto(3.0), Empirical([3.0, 1.0]), late, hours]
    return [*kinds, Informative(Uniform(3.0)), Scaled(Informative(Uniform(3.0)))]


def policies_and_families():
    for name in registry.POLICIES:
        kind = registry.load(registry.POLICIES, name)
        for family in families():
            policy = registry.example_policy(kind, family)
            if not refusal(policy, family):
                yield pytest.param(policy, family, id=f"{name}-{family!r}")


@pytest.mark.parametrize("check", checks.POLICY_CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("policy", "family"), list(policies_and_families()))
def test_policy(policy, family, check):
    check(policy, family)


@pytest.mark.parametrize("name", registry.POLICIES)
def test_refusals(name):
    """A policy that refuses a family says so before the first round; none refuses all."""
    refused = 0
    for family in families():
        policy = registry.example_policy(registry.load(registry.POLICIES, name), family)
        if refusal(policy, family):
            refused += 1
            with pytest.raises(ValueError, match=type(policy).__name__):
                policy.resolve(family, 3, 1.0)
    assert refused < len(families())


@pytest.mark.parametrize("check", checks.FAMILY_CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("family", families(), ids=repr)
def test_family(family, check):
    check(family)


@pytest.mark.parametrize("check", checks.DELAY_CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("delay", delays(), ids=repr)
def test_delay(delay, check):
    check(delay)


def test_all_checks_are_listed():
    """A check that is written but not listed would never run."""
    listed = checks.POLICY_CHECKS + checks.FAMILY_CHECKS + checks.DELAY_CHECKS
    written = {v for k, v in vars(checks).items() if k.startswith("check_")}
    assert written - set(listed) == {checks.check_policy, checks.check_family, checks.check_delay}


def test_unknown_name():
    with pytest.raises(ValueError, match=r"name = 'gausian': .*; did you mean gaussian\?"):
        registry.load(registry.FAMILIES, "gausian")
    with pytest.raises(ValueError, match=r"name = 'xyz': expected one of .*poisson$"):
        registry.load(registry.FAMILIES, "xyz")
