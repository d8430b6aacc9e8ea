"""Writes the data of this folder with version 0.1, and what that version says of them.

Only version 0.1 may do it: what a later version writes would prove nothing. From the root of the
repository, once compiled and once in plain Python, because the last bits of some numbers differ:

    git worktree add ../v01 e79a8b7
    PYTHONPATH=../v01/src python tests/data/version_0_1/make.py tests/data/version_0_1
    PYTHONPATH=../v01/src NUMBA_DISABLE_JIT=1 python tests/data/version_0_1/make.py \
        tests/data/version_0_1

The first run writes the files, each run adds what it reads in them to ``said.json``. Names that are
not public are imported inside of functions, because pytest imports this file to look for examples.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

HOUR = 3_600_000_000  # microseconds
BEGIN = 1_750_000_000_000_000  # June 2025: all windows have closed when a test opens the ledger
AISLES = ("fruit", "bread")
VECTORS = [[0.6, 0.1, -0.3], [-0.2, 0.7, 0.2], [0.1, -0.4, 0.8], [0.5, 0.5, 0.5]]
COUNTS = {"bernoulli": 1, "poisson": 3}  # greatest rewards that are drawn


def products(rng):
    """Returns three actions as dicts."""
    return [
        {"price": float(rng.integers(1, 9)), "aisle": AISLES[k % 2], "brand": f"b{rng.integers(5)}"}
        for k in range(3)
    ]


def new_features():
    """Returns features of all kinds, fitted."""
    from belated import Features

    features = Features(
        numeric=["price"],
        categorical=["aisle", "hour"],
        hashed={"brand": 2},
        interactions=[("price", "hour")],
        intercept=False,
    )
    return features.fit(
        [
            {"price": float(1 + 6 * k), "aisle": aisle, "brand": "b0", "hour": hour}
            for k, aisle in enumerate(AISLES)
            for hour in ("morning", "evening")
        ]
    )


def write_bandits(folder):
    """Save four bandits in the middle of their work."""
    from belated import Bandit, registry

    for file, policy, family in (
        ("delayed_ofu_glm", "delayed-ofu-glm:delta=0.1", "bernoulli"),
        ("thompson", "thompson:scale=0.5", "gaussian:0.5"),
        ("greedy", "greedy", "poisson"),
        ("features", "delayed-ofu-glm", "bernoulli"),
    ):
        features = new_features() if file == "features" else None
        bandit = Bandit(
            None if features else 3,
            family=registry.parse(registry.FAMILIES, family),
            policy=registry.parse(registry.POLICIES, policy),
            seed=1,
            features=features,
        )
        rng, open_ids = np.random.default_rng(2), []
        most = COUNTS.get(family)
        for t in range(40):
            if features:
                context = {"hour": ("morning", "evening")[t % 2]}
                decision = bandit.decide(products(rng), context=context)
            else:
                x = rng.normal(size=(5, 3))
                decision = bandit.decide(x / np.linalg.norm(x, axis=1, keepdims=True))
            open_ids.append(decision.id)
            if t % 3 == 2:  # late, together and not in the order of the decisions
                late = [open_ids.pop(int(rng.integers(len(open_ids)))) for _ in range(2)]
                draws = [rng.integers(most + 1) if most else rng.normal() for _ in late]
                bandit.learn([(id, float(y)) for id, y in zip(late, draws, strict=True)])
        bandit.save(folder / f"{file}.bandit")


def write_ledger(path):
    """Write a ledger with two bandits, to which everything happens that can, and a snapshot."""
    import msgspec

    from belated import registry
    from belated.ledger import open_ledger, snapshots
    from belated.ledger.deciding import Ask
    from belated.ledger.events import NOBODY, Draft, KeyChange, Kind
    from belated.ledger.ids import Ids
    from belated.ledger.loop import Loop
    from belated.ledger.spec import Spec

    now = BEGIN
    ledger = open_ledger(f"sqlite:///{path}")
    loop = Loop(ledger, clock=lambda: now, seed=3)
    rng, features = np.random.default_rng(4), new_features()

    def parts(policy, family):
        return (
            registry.parse(registry.FAMILIES, family),
            registry.parse(registry.POLICIES, policy),
        )

    loop.configure(
        "offers",
        Spec.of(
            features.dim,
            *parts("delayed-ofu-glm", "bernoulli"),
            features=features.to_dict(),
            loop="conversion",
            window=7200.0,
            exploration=0.1,
        ),
    )
    loop.configure("prices", Spec.of(3, *parts("oful", "gaussian:0.5"), late="revise"))
    loop.register("offers", {f"offer-{k}": row for k, row in enumerate(products(rng))})
    loop.register("prices", {f"price-{k}": vector for k, vector in enumerate(VECTORS)})
    key = KeyChange("0123", "till", "0" * 64, "prices", ("decide", "reward"))
    loop.commit([Draft(Kind.KEYS, "", NOBODY, now, body=msgspec.msgpack.encode(key))])

    def ask_offer(t):
        context = {"hour": ("morning", "evening")[t % 2]}
        return Ask(
            context=context,
            context_json=msgspec.json.encode(context),
            request=f"request-{t}",
            digest=bytes([t]),
            subject=("ann", "bob", "cleo")[t % 3],
        )

    statuses = []

    def reward(pairs, bandit=""):
        statuses.extend(str(status) for status in loop.reward(pairs, bandit))

    offers, prices = [], []
    for t in range(48):
        now = BEGIN + t * HOUR // 4
        loop.expire()
        proposals = [loop.propose("offers", ask_offer(t)), loop.propose("prices", Ask())]
        loop.commit([proposal.draft for proposal in proposals])
        offers.append(proposals[0].draft.id)
        prices.append(proposals[1].draft.id)
        if t % 4 == 1:  # most come in time
            reward([(offers[t - 1], 1.0), (prices[t], float(rng.normal()))])
        if t % 4 == 2:
            reward([(prices[t - 2], 0.25), (prices[t // 2], float(rng.normal()))])
        if t == 15:
            reward([(offers[2], 1.0)])  # after its window
            reward([(prices[0], 0.25), (prices[1], 7.0)])  # another one than before
            reward([(offers[0], 1.0)], "offers")  # the same as before
            reward([(offers[t], 0.5)])  # no reward of a Bernoulli law
            reward([(bytes(16), 1.0)])  # of no decision
        if t == 18:
            drafts = [Draft(Kind.CANCELLED, "", id, now) for id in (offers[t], prices[t])]
            revision = Draft(Kind.REVISED, "", prices[1], now, -0.5)
            statuses.extend(str(o.status) for o in loop.commit([*drafts, revision]))
        if t == 20:
            loop.register("offers", {"offer-3": products(rng)[1]}, ["offer-0"])
            ledger.forget("offers", "bob", now)
            loop.catch_up()
        if t == 24:
            snapshots.save(loop, snapshots.default_folder(f"sqlite:///{path}"))
        if t == 30:
            spec = msgspec.structs.replace(loop.folds["offers"].spec, exploration=0.0)
            loop.configure("offers", spec)
    reward([(Ids(lambda: now, 5)(), 1.0)])  # whose decision may still come
    ledger.close()
    return {"statuses": statuses, "cancelled": prices[18].hex(), "open": prices[47].hex()}


def hexes(numbers):
    """Returns numbers as texts that lose nothing."""
    return [float(number).hex() for number in np.ravel(numbers)]


def shown(decision):
    """Returns what a user sees of a decision besides its id."""
    return [decision.index, *hexes([decision.score, decision.estimate, decision.width])]


def knowledge(bandit):
    """Returns what can be read of a bandit."""
    return {
        "theta": hexes(bandit.theta),
        "fingerprint": bandit.fingerprint(),
        "n_observed": bandit.n_observed,
        "n_missing": bandit.n_missing,
    }


def in_plain_python():
    """Whether nothing is compiled."""
    return os.environ.get("NUMBA_DISABLE_JIT") == "1"


def say_of_bandits(folder):
    """Returns what is said of each saved bandit, of its next decisions, and of a lesson."""
    from belated import Bandit

    said = {}
    for path in sorted(folder.glob("*.bandit")):
        bandit = Bandit.load(path, same_stream=True)
        asked = {"actions": VECTORS}
        if bandit.features is not None:
            asked = {"actions": products(np.random.default_rng(6)), "context": {"hour": "evening"}}
        missing = [id for id in range(1, 41) if np.isnan(bandit._history.y[id - 1])][:3]
        found = {"asked": asked, "open": missing, "known": knowledge(bandit)}
        found["decisions"] = [shown(bandit.decide(**asked)) for _ in range(3)]
        bandit.learn([(id, 1.0) for id in missing])
        found["learnt"] = knowledge(bandit)
        said[path.stem] = found
    return said


def say_of_ledger(folder):
    """Returns what is said of each bandit of the ledger after a replay, and when it goes on."""
    from belated import Bandit, registry
    from belated.ledger import open_ledger, snapshots
    from belated.ledgering import replaying, verifying

    said = {}
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        url = f"sqlite:///{copy}/shop.db"
        ledger = open_ledger(url)
        # The snapshot is that of compiled code, whose last bits differ from those of plain Python.
        beside = None if in_plain_python() else snapshots.default_folder(url)
        assert verifying.verify(ledger, beside)["sound"]
        for bandit in replaying.replay(ledger, None)["bandits"]:
            said[bandit["bandit"]] = {"replay": bandit}
        said["parked"] = len(ledger.parked())
        ledger.close()
        for name, policy, family, features in (
            ("offers", "delayed-ofu-glm", "bernoulli", new_features()),
            ("prices", "oful", "gaussian:0.5", None),
        ):
            asked = {"actions": VECTORS}
            if features:
                actions = products(np.random.default_rng(6))
                asked = {"actions": actions, "context": {"hour": "evening"}}
            bandit = Bandit(
                features.dim if features else 3,
                family=registry.parse(registry.FAMILIES, family),
                policy=registry.parse(registry.POLICIES, policy),
                features=features,
                ledger=url,
                name=name,
            )
            said[name]["asked"] = asked
            said[name]["known"] = knowledge(bandit)
            said[name]["decision"] = shown(bandit.decide(**asked))  # closes windows first
            said[name]["closed"] = knowledge(bandit)
            bandit.close()
    return said


def where():
    """Returns what the last bits of a sum depend on."""
    from importlib.metadata import version

    from llvmlite.binding import get_host_cpu_name

    return {"cpu": get_host_cpu_name(), "numpy": version("numpy"), "numba": version("numba")}


def main(folder):
    """Write what is missing in the folder, and what is said of it in this mode."""
    import belated.ledger.loop  # which is there in version 0.1

    print("written by", belated.__file__)
    file = folder / "said.json"
    if not file.exists():
        write_bandits(folder)
        file.write_text(json.dumps({"story": write_ledger(folder / "shop.db")}))
    mode = "plain" if in_plain_python() else "compiled"
    said = json.loads(file.read_text())
    said[mode] = {"bandits": say_of_bandits(folder), "ledger": say_of_ledger(folder)}
    file.write_text(json.dumps(said | {"where": where()}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
