"""The policies that a log is asked about."""

import numpy as np
import pytest

from belated import Bandit, Features
from belated.logs.targets import learns, target_of

ACTIONS = ["boots", "map"]


def probabilities(context, actions):
    new = context["kind"] == "new"
    return np.where(new[:, np.newaxis], [[0.9, 0.1]], [[0.2, 0.8]])


def scores(context, actions):
    return np.array([[2.0, -1.0], [0.0, 0.0], [1.0, 5.0]])


def of(text, scores=False):
    return target_of(text, ACTIONS, "banner", scores)


def test_uniform_and_fixed():
    assert of("uniform").chances(2, {}).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert of("fixed:map").chances(2, {}).tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert of("fixed:map").words == "always 'map'"
    with pytest.raises(ValueError, match=r"--policy = 'fixed:tent': expected an action that the"):
        of("fixed:tent")


def test_a_function_of_a_module():
    context = {"kind": np.array(["new", "old"], object)}
    target = of(f"{__name__}:probabilities")
    assert target.chances(2, context).tolist() == [[0.9, 0.1], [0.2, 0.8]]
    assert target.words == f"with the probabilities of {__name__}:probabilities"


def test_a_function_of_scores_plays_the_first_of_the_highest():
    played = of(f"{__name__}:scores", scores=True).chances(3, {})
    assert played.tolist() == [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    with pytest.raises(ValueError, match="probabilities that add up to 1; --scores plays"):
        of(f"{__name__}:scores").chances(3, {})


@pytest.mark.parametrize("as_scores", [False, True])
def test_a_rule_for_all_contexts_is_one_row(as_scores):
    """Without --context a function cannot know how many rows there are."""
    found = target_of(lambda context, actions: [0.25, 0.75], ACTIONS, "banner", as_scores)
    row = [0.0, 1.0] if as_scores else [0.25, 0.75]
    assert found.chances(3, {}).tolist() == [row] * 3
    wrong = target_of(lambda context, actions: [0.25, 0.25], ACTIONS, "banner", False)
    with pytest.raises(ValueError, match=r"row 0 = .0.25, 0.25.: expected probabilities"):
        wrong.chances(3, {})
    short = target_of(lambda context, actions: [1.0], ACTIONS, "banner", False)
    with pytest.raises(ValueError, match=r"contexts by actions, or \(2,\) for all contexts"):
        short.chances(3, {})


def test_a_function_of_a_file(tmp_path):
    path = tmp_path / "rule.py"
    path.write_text("def play(context, actions):\n    return [[0.25, 0.75]]\n")
    target = of(f"{path}:play")
    assert target.chances(1, {}).tolist() == [[0.25, 0.75]]
    with pytest.raises(ValueError, match=r"shape = \(1, 2\): expected \(3, 2\), contexts by acti"):
        target.chances(3, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nobody", "expected uniform, fixed:ACTION"),
        ("no_such_module:play", "a function that can be imported .No module named"),
        (f"{__name__}:ACTIONS", "expected a function, not list"),
        ("no_such_file.py:play", "a function that can be imported"),
    ],
)
def test_words_that_name_no_policy(text, said):
    with pytest.raises(ValueError, match=said):
        of(text)


def test_policies_that_learn():
    assert learns("adaptive-thompson")
    assert learns("linucb:alpha=2")
    assert not learns("uniform")
    assert not learns(f"{__name__}:scores")


def saved(tmp_path):
    rows = [{"banner": name} for name in ACTIONS]
    features = Features(categorical=["banner", "kind"], interactions=[("banner", "kind")])
    features = features.fit(rows, [{"kind": "new"}, {"kind": "old"}])
    bandit = Bandit(family="bernoulli", features=features, policy="thompson", seed=1)
    for _ in range(40):
        decision = bandit.decide(rows, {"kind": "new"})
        bandit.learn(decision.id, float(decision.index))
    bandit.save(tmp_path / "shop.bandit")
    return bandit, rows, str(tmp_path / "shop.bandit")


def test_a_saved_bandit_plays_as_it_would_and_learns_nothing(tmp_path):
    bandit, rows, path = saved(tmp_path)
    target = of(path)
    before = target.bandit.fingerprint()
    chances = target.chances(3, {"kind": np.array(["new", "old", "new"], object)})
    assert chances[0].tolist() == bandit.probabilities(rows, {"kind": "new"}).tolist()
    assert chances[1].tolist() == bandit.probabilities(rows, {"kind": "old"}).tolist()
    assert chances[0].tolist() == chances[2].tolist()
    assert chances[0, 1] > 0.9
    assert chances.sum(axis=1) == pytest.approx(1.0)
    assert target.bandit.fingerprint() == before


def test_a_saved_bandit_needs_its_columns(tmp_path):
    _, _, path = saved(tmp_path)
    with pytest.raises(ValueError, match=r"--context = \[\]: expected the bandit's column 'kind'"):
        of(path).chances(1, {})
    with pytest.raises(ValueError, match="a bandit whose Features have the action's column 'arm'"):
        target_of(path, ACTIONS, "arm", False)
