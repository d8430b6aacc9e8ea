"""Half-lives over HTTP: as a setting, and whether one would help."""

import pytest

from support.service_client import ACTIONS, SECOND, Client

DAY = 86_400 * SECOND


def test_a_half_life_is_a_setting_that_can_be_changed():
    client = Client()
    client.bandit(half_life=3600, half_life_unit="seconds")
    settings = client("GET", "/v1/bandits/shop")["settings"]
    assert (settings["half_life"], settings["half_life_unit"]) == (3600.0, "seconds")
    changed = {"family": "bernoulli", "policy": "delayed-ofu-glm", "dim": 2, "half_life": 10}
    settings = client("PUT", "/v1/bandits/shop", changed)["settings"]
    assert (settings["half_life"], settings["half_life_unit"]) == (10.0, "decisions")
    for refused in (0, -1, 1e13, "long"):
        client("PUT", "/v1/bandits/shop", changed | {"half_life": refused}, 422)
    problem = client("PUT", "/v1/bandits/x", changed | {"policy": "glb-omd", "half_life": 10}, 422)
    assert problem["detail"].startswith("half_life = 10.0: GLBOMD takes every reward in once")


def test_it_says_whether_forgetting_would_help():
    client = Client()
    client.bandit()
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    client.reward((client.decide()["decision_id"], 1.0))
    view = client("GET", "/v1/bandits/shop/forgetting")
    assert view["sentence"].startswith("Too few to say whether forgetting would help: 1 rewards")
    client("GET", "/v1/bandits/none/forgetting", status=404)


@pytest.mark.parametrize("turns", [True, False])
def test_with_rewards_of_several_days_it_names_a_half_life_or_none(turns):
    """What paid on the first days pays nothing on the last two, or goes on to pay."""
    client = Client()
    client.bandit(policy=None)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    for day in range(6):
        batch = {"decisions": [{}] * 60}
        made = client("POST", "/v1/bandits/shop/decisions/batch", batch)["decisions"]
        pays = "b" if turns and day >= 4 else "a"
        client.reward(*((one["decision_id"], float(one["action"] == pays)) for one in made))
        client.now += DAY
    client.now -= SECOND  # the last day began before its rewards
    view = client("GET", "/v1/bandits/shop/forgetting")
    assert view["n_rewards"] == 60
    assert [one["half_life"] for one in view["half_lives"]] == [86_400 * n for n in (1, 3, 10, 30)]
    said = "With a half-life of 1 day the last day's 60 rewards" if turns else "No half-life of 1"
    assert view["sentence"].startswith(said)
