"""Half-lives over HTTP: as a setting, and whether one would help."""

from support.service_client import ACTIONS, Client


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
