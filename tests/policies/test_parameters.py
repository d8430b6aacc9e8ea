"""What a user sets, what is derived from it, and where each policy lives."""

import ast
import math
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import belated.policies
from belated import Bandit, registry
from belated.families import Bernoulli, Gaussian
from belated.learner import files
from belated.model.plain_policy import is_own
from belated.policies import DelayedOFUGLM, LinUCB, LogUCB1, Thompson

HOME = Path(belated.policies.__file__).parent
FILES = sorted([*HOME.glob("*.py"), *HOME.glob("arms/*.py")])


def resolved_policies():
    """Every compiled policy of the registry, as given and resolved, with a family it accepts."""
    for name in registry.POLICIES:
        kind = registry.load(registry.POLICIES, name)
        for family in (Gaussian(0.3), Bernoulli()):
            policy = registry.example_policy(kind, family)
            if not is_own(policy) and not getattr(policy, "refuses", lambda family: "")(family):
                yield pytest.param(policy, policy.resolve(family, 3, 2.0), family, id=name)
                break


POLICIES = list(resolved_policies())
DERIVING = [case for case in POLICIES if hasattr(case.values[0], "derived")]


@pytest.mark.parametrize(("policy", "resolved", "family"), POLICIES)
def test_a_file_that_holds_a_resolved_policy_gives_it_back(policy, resolved, family):
    """Today's files, and those of version 0.1, which hold what was derived as well."""
    today = files.describe("POLICIES", resolved)
    assert today["type"] == registry.name_of(registry.POLICIES, policy)
    old = {"type": today["type"], "values": resolved._asdict()}
    for description in (today, old):
        again = files.rebuild("POLICIES", description, ())
        assert type(again) is type(policy)
        assert again.resolve(family, 3, 2.0) == resolved


@pytest.mark.parametrize(("policy", "resolved", "family"), DERIVING)
def test_nobody_sets_or_sees_what_is_derived(policy, resolved, family):
    assert isinstance(resolved, type(policy))
    assert pickle.loads(pickle.dumps(resolved)) == resolved
    for name in policy.derived:
        assert getattr(resolved, name) is not None
        assert name not in policy._fields
        assert f"{name}=" not in repr(resolved)
        assert registry.values_of(policy)[name] is None  # as version 0.1 wrote it
        with pytest.raises(ValueError, match=rf"^{name} = 3: expected no value: \w+ derives it"):
            type(policy)(**{name: 3})


def test_a_bandit_shows_what_its_user_may_set():
    bandit = Bandit(2, family=Gaussian(0.5), policy=Thompson(prior_sd=2.0))
    assert repr(bandit.policy) == "Thompson(prior_sd=2.0, scale=1.0, drift=0.1)"
    assert bandit.policy.lam == 0.25 / 4.0
    again = Bandit(2, family=Gaussian(0.5), policy=bandit.policy)
    assert again.policy == bandit.policy


def test_declared_checks():
    """They hold for optional parameters, too, and again where ``_replace`` went around them."""
    assert type(DelayedOFUGLM(lam=2).lam) is float
    assert DelayedOFUGLM(order=2).order == 2
    for bad in (0.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=rf"lam = {bad}: expected a finite number above 0"):
            DelayedOFUGLM(lam=bad)
    with pytest.raises(ValueError, match="order = 4: expected 2, 3 or None"):
        DelayedOFUGLM(order=4)
    with pytest.raises(TypeError, match="constrained = 1: expected True or False"):
        DelayedOFUGLM(constrained=1)
    with pytest.raises(TypeError, match="counts_actions = 1: expected True or False"):
        LinUCB(counts_actions=1)
    with pytest.raises(ValueError, match=r"kappa = -1\.0: expected"):
        LogUCB1()._replace(kappa=-1.0).resolve(Bernoulli(), 2, 1.0)


# ----------------------------------------------------------------------------------------- homes


def test_importing_one_policy_imports_one_policy():
    ask = "import sys, belated.policies.linucb; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True)
    found = {name for name in out.stdout.split() if name.startswith("belated.policies.")}
    shared = {name for name in found if name.startswith("belated.policies.shared")}
    assert found - shared == {"belated.policies.linucb"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_policy_imports_another(file):
    if file.name == "__init__.py":
        return
    imported = [n.module for n in ast.walk(ast.parse(file.read_text())) if hasattr(n, "module")]
    ours = [name for name in imported if name.startswith("belated.policies")]
    assert all(name.startswith("belated.policies.shared.") for name in ours), ours


def test_names_of_the_package():
    """At run time, for ``dir``, and for type checkers."""
    kinds = {registry.load(registry.POLICIES, name) for name in registry.POLICIES}
    assert {getattr(belated.policies, name) for name in belated.policies.__all__} == kinds
    assert dir(belated.policies) == sorted(kind.__name__ for kind in kinds)
    tree = ast.parse((HOME / "__init__.py").read_text())
    stated = {
        (node.module, alias.name)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert stated == {(kind.__module__, kind.__name__) for kind in kinds}
    with pytest.raises(AttributeError, match="no attribute 'Thomson'"):
        _ = belated.policies.Thomson
