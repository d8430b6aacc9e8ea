"""The league: players in named worlds, rewards when they are due, matches side by side."""

import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from belated import registry
from belated.experiments.league import league as league_module
from belated.experiments.league import playing
from belated.experiments.league.league import new_league, play_league
from belated.experiments.league.peers import PEERS, library_of, of_visitor, settings_of
from belated.experiments.league.players import OfLines, OfVectors, Ours
from belated.experiments.league.playing import Match, play, play_match
from belated.peers.adapter import Adapter
from belated.worlds.shops.changing import NewBanners
from belated.worlds.shops.lateness import Conversions
from belated.worlds.shops.shop import Shop
from belated.worlds.shops.sizes import FewBanners
from support.command import belated

PLAIN = {"NUMBA_DISABLE_JIT": "1"}


class Fixed:
    """Plays by a rule and writes down when each reward comes."""

    def __init__(self, rule, closes_windows=False):
        self.rule, self.t, self.came = rule, 0, {}
        self.closes_windows = closes_windows

    def show(self, visit):
        return visit

    def decide(self, shown):
        self.t += 1
        return self.rule(shown)

    def learn(self, rewards):
        assert rewards, "nothing to learn is not learnt"
        for t, y in rewards:
            assert t not in self.came
            self.came[t] = (self.t, y)


def last_row(world, rule, decisions=400):
    table = play(world, Fixed(rule), np.array([decisions]))
    return {name: column[-1] for name, column in table.items()}


@pytest.mark.parametrize("name", registry.WORLDS)
def test_best_play_earns_everything_and_uniform_play_nothing(name):
    world = registry.load(registry.WORLDS, name)(1)
    row = last_row(world, lambda visit: int(np.argmax(visit.expected)))
    assert row["earned"] == pytest.approx(row["best"])
    rng = np.random.default_rng(1)
    row = last_row(world, lambda visit: int(rng.integers(len(visit.actions))), 2000)
    assert abs(row["earned"] - row["uniform"]) < 0.06 * (row["best"] - row["uniform"])


def test_rewards_come_with_the_first_delivery_after_they_are_known():
    world, player = Shop(1), Fixed(lambda visit: 3)
    table = play(world, player, np.array([1000, 3000]))
    for t, visit in zip(range(3000), world.visits(), strict=False):
        outcome = world.outcome(visit, 3)
        delivery = 10 * math.ceil((t + outcome.wait) / 10)
        expected = (delivery, outcome.reward) if delivery < 3000 else None
        assert player.came.get(t) == expected
    assert table["learnt"] == [sum(at < 1000 for at, _ in player.came.values()), len(player.came)]
    assert table["t"] == [1000, 3000]


def test_where_only_buyers_report_ours_hear_of_them_and_peers_when_windows_close():
    world = Conversions(1)
    world.window = 500.0
    world.rate, ours, peer = 0.05, *(Fixed(lambda visit: 3, closes) for closes in (True, False))
    for player in (ours, peer):
        play(world, player, np.array([2000]))
    for t, visit in zip(range(2000), world.visits(), strict=False):
        reward, wait = world.outcome(visit, 3)
        closes = 10 * math.ceil((t + 500.0) / 10)
        assert peer.came.get(t) == ((closes, reward) if closes < 2000 else None)
        delivery = math.inf if reward == 0.0 else 10 * math.ceil((t + wait) / 10)
        assert ours.came.get(t) == ((delivery, 1.0) if delivery < 2000 else None)


class FewConversions(FewBanners, Conversions):
    """Few features, for plain Python's sake."""


@pytest.mark.parametrize(
    ("policy", "open", "used"),
    [("adaptive-thompson", None, "silence"), ("adaptive-thompson", "hold", "hold"),
     ("thompson", None, "hold"), ("otf-lin-ts:window=50", None, "silence")],
)  # fmt: skip
def test_a_bandit_of_ours_closes_its_windows_by_the_number_of_decisions(policy, open, used):
    world = FewConversions(2)
    world.window, n = 40.0, 120
    player = Ours(policy, world, open)
    play(world, player, np.array([n]))
    fold = player.bandit._backend._fold
    assert fold.spec.open == used
    assert fold.counts.late == 0  # conversions within the window are delivered in time
    made = np.arange(n)
    closed = made + 40 + 10 < n - 1  # at the last decision
    y = player.bandit._history.y[:n]
    if used == "hold":
        assert (np.isnan(y) == ~closed).all()
    elif fold.hearing is None:  # it learns conversions alone
        assert fold.counts.rewarded == np.nansum(y) == fold.learner.n_observed
    else:
        assert fold.counts.rewarded == np.nansum(y) + sum(fold.hearing.rewards.values())
        assert not np.isnan(y[made < n - 1 - 50 - 16]).any()  # a tick is at most 16 decisions later


def test_rehearsals_do_not_wait():
    player = Fixed(lambda visit: 0)
    play(Shop(1), player, np.array([30]), longest_wait=3.0)
    assert len(player.came) > 14


def test_every_player_of_a_world_meets_the_same_luck():
    players = ("uniform", "greedy")
    rows = [play_match(Match("few-banners", name, 4, 40), float) for name in players]
    frames = [table.to_pandas() for table in rows]
    assert frames[0][["t", "uniform", "best"]].equals(frames[1][["t", "uniform", "best"]])
    assert not frames[0]["earned"].equals(frames[1]["earned"])
    again = play_match(Match("few-banners", "greedy", 4, 40), float).to_pandas()
    assert again.drop(columns="seconds").equals(frames[1].drop(columns="seconds"))


def test_a_bandit_of_ours_learns_what_it_is_told():
    world = Shop(2)
    player = Ours("greedy", world)
    visit = next(world.visits())
    for _ in range(3):
        player.decide(player.show(visit))
    player.learn([(2, 1.0), (0, 0.0)])
    assert player.bandit.n_observed == 2
    assert player.bandit.n_missing == 1
    assert player.bandit.dim == 89


class Recording(Adapter):
    """A library that keeps what it is told."""

    def begin(self, seed):
        self.told = []

    def pick(self, actions, t):
        return len(self.pending), actions.copy()

    def learn(self, row, kept, y):
        self.told.append((row, kept, y))


def test_peers_get_raw_one_hot_vectors():
    world = Shop(2)
    player = OfVectors(Recording({}, "recording"), world)
    first, second = (visit for _, visit in zip(range(2), world.visits(), strict=False))
    for visit in (first, second):
        player.decide(player.show(visit))
    player.learn([(1, 0.5)])
    ((row, kept, y),) = player.adapter.told
    assert (row, y) == (1, 0.5)
    assert set(kept.ravel()) == {0.0, 1.0}
    assert kept @ world.theta == pytest.approx(np.log(second.expected / (1 - second.expected)))


def test_shared_columns_are_the_visitors():
    world = Shop(2)
    assert of_visitor(world) == [*range(20, 28), 88]
    visit = next(world.visits())
    rows = OfVectors(Recording({}, "recording"), world).show(visit)
    assert (rows[:, of_visitor(world)] == rows[0, of_visitor(world)]).all()


def test_vowpal_wabbit_gets_columns_as_namespaces():
    pytest.importorskip("vowpalwabbit")
    world = Shop(2)
    player = OfLines("--epsilon 0.2", world)
    assert player.adapter.policy == "--cb_explore_adf --epsilon 0.2 -q ab"
    visit = next(world.visits())
    row = player.decide(player.show(visit))
    lines, chance = player.kept[0][1]
    device, country = visit.context["device"], visit.context["country"]
    assert lines[:2] == [f"shared |b {device} |c {country}", "|a banner-0"]
    assert len(lines) == 21
    assert chance == pytest.approx(1 / 20)  # all banners are the same before the first reward
    before = player.adapter.live.predict(lines)
    for _ in range(20):
        player.adapter.learn(row, (lines, chance), 1.0)
    after = player.adapter.live.predict(lines)
    assert after[row] == max(after)
    assert after[row] >= before[row]


@pytest.mark.parametrize("peer", PEERS)
def test_every_peer_plays_and_states_its_settings(peer):
    pytest.importorskip(library_of(peer))
    table = play_match(Match("few-banners", peer, 1, 40), float)
    assert table["t"].to_pylist()[-1] == 40
    assert table["seconds"].to_pylist()[-1] > 0.0
    again = play_match(Match("few-banners", peer, 1, 40), float)
    assert again["earned"].to_pylist() == table["earned"].to_pylist()
    assert len(settings_of(peer)) > 40


def test_who_cannot_play_is_left_out_with_a_reason():
    league = new_league(["shop", "new-banners"], ["greedy"], ["river-linucb"], seeds=2)
    reason = "it has a model per action, and actions come and go"
    assert league.left_out == {("new-banners", "river-linucb"): reason}
    played = {(match.world, match.player) for match in league.matches()}
    assert played == {("shop", "greedy"), ("shop", "river-linucb"), ("new-banners", "greedy")}
    lengths = {match.world: match.decisions for match in league.matches()}
    assert lengths == {"shop": Shop.decisions, "new-banners": NewBanners.decisions}


def test_seeds_follow_the_first():
    league = new_league(["few-banners"], ["greedy"], [], seeds=3, seed=1000)
    assert [match.seed for match in league.matches()] == [1000, 1001, 1002]


def test_a_library_that_is_not_there(monkeypatch):
    def missing(world):
        raise ModuleNotFoundError("no library")

    monkeypatch.setitem(PEERS, "vw-bag", missing)
    monkeypatch.setattr(league_module, "PEERS", {"vw-bag": missing})
    assert new_league(["shop"], ["greedy"]).left_out == {("shop", "vw-bag"): "no library"}
    with pytest.raises(ModuleNotFoundError):
        new_league(["shop"], ["greedy"], ["vw-bag"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"worlds": ["shp"]}, "expected one of shop, .*did you mean shop"),
        ({"peers": ["vw"]}, "peer = 'vw': expected one of bayesianbandits-glm"),
        ({"policies": ["greedi"]}, "did you mean greedy"),
        ({"policies": []}, "policies = .*: expected one or more"),
        ({"seeds": 0}, "seeds = 0"),
        ({"decisions": 5}, "decisions = 5"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    given = {"worlds": ["few-banners"], "policies": ["greedy"], "peers": [], **arguments}
    with pytest.raises(ValueError, match=message):
        new_league(**given)


def test_a_league_may_grow(tmp_path, monkeypatch):
    played = []

    def noted(match, after_block):
        played.append(match.name)
        return play_match(match, after_block)

    monkeypatch.setattr(league_module, "play_match", noted)
    small = new_league(["few-banners"], ["uniform"], [], seeds=1, decisions=40)
    play_league(small, tmp_path, 1, "threads", progress=False)
    large = new_league(["few-banners"], ["uniform", "greedy:lam=2"], [], seeds=2, decisions=40)
    frame = play_league(large, tmp_path, 1, "threads", progress=False)
    assert played[0] == "few-banners.uniform.0"
    assert sorted(played[1:]) == [
        "few-banners.greedy-lam-2.0",
        "few-banners.greedy-lam-2.1",
        "few-banners.uniform.1",
    ]
    assert len(frame) == 4 * playing.CHECKPOINTS
    other = new_league(["few-banners"], ["uniform"], [], seeds=1, decisions=50)
    with pytest.raises(ValueError, match=r"holds another experiment .decisions is 40 there, 50"):
        play_league(other, tmp_path, 1, "threads", progress=False)


def test_matches_are_played_seed_by_seed(tmp_path, monkeypatch):
    """Whatever the worlds' lengths: a league that is stopped has whole pairs."""
    played = []

    def shortened(match, after_block):
        played.append((match.seed, match.world))
        return play_match(match._replace(decisions=20), after_block)

    monkeypatch.setattr(league_module, "play_match", shortened)
    league = new_league(["few-banners", "shop"], ["uniform"], [], seeds=2)
    play_league(league, tmp_path, 1, "threads", progress=False)
    assert played == [(0, "few-banners"), (0, "shop"), (1, "few-banners"), (1, "shop")]


def test_the_command(tmp_path):
    options = ["--seeds", "2", "--decisions", "40", "--peers", "none", "--out", str(tmp_path)]
    options += ["--world", "few-banners", "--policies", "greedy,uniform"]
    result = belated("compare", *options, **PLAIN)
    assert "few-banners: 40 decisions, 2 seeds" in result.stdout
    assert "differences to greedy" in " ".join(result.stdout.split())
    assert result.stdout.endswith(f"table: {tmp_path}/league.csv, figure: {tmp_path}/league.png\n")
    assert (tmp_path / "league.png").read_bytes()[:4] == b"\x89PNG"
    assert len((tmp_path / "league.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(tmp_path):
    """The matches that are done stay, the processes are gone, and the same command goes on."""
    options = ["--seeds", "400", "--decisions", "200", "--peers", "none", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "belated", "compare", "--world", "few-banners", *options]
    stopped = subprocess.Popen(
        [*command, "--policies", "uniform", "--threads", "1"],
        env={**os.environ, **PLAIN},
        stderr=subprocess.PIPE,
        text=True,
    )
    parts = tmp_path / "parts"
    while not list(parts.glob("few-banners.uniform.*")):
        assert stopped.poll() is None
        time.sleep(0.05)
    stopped.send_signal(signal.SIGINT)
    assert stopped.communicate()[1].endswith("stopped; the same command resumes\n")
    assert stopped.returncode == 130
    done = len(list(parts.glob("few-banners.uniform.*")))
    assert 1 <= done < 400
    league = new_league(["few-banners"], ["uniform"], [], seeds=done + 1, decisions=200)
    frame = play_league(league, tmp_path, 1, "threads", progress=False)
    assert frame["seed"].nunique() == done + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--world", "shop", "--dim", "3"],
            "--dim: expected no --world: a named world has its own",
        ),
        (["--seeds", "3"], "--seeds: expected --world beside it"),
        (["--world", "shp"], "world = 'shp': expected one of shop"),
    ],
)
def test_wrong_options_are_one_line(options, message, tmp_path):
    result = belated("compare", *options, "--out", str(tmp_path / "out"), check=False, **PLAIN)
    assert result.returncode == 2
    assert result.stderr.startswith(f"belated: {message}")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
