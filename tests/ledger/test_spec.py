"""Settings of a bandit in a ledger: which are refused, and which may change."""

import msgspec
import pytest

from belated import Gaussian
from belated.ledger.replica import Replica
from belated.ledger.stores.memory import MemoryLedger
from support.replicas import Clock, explicit, new_replica


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"loop": "conversion"}, "window = None"),
        ({"window": -1.0}, "window = -1"),
        ({"loop": "conversion", "window": 1.0, "default_reward": 0.5}, "default_reward = 0.5"),
        ({"exploration": 1.5}, "exploration = 1.5"),
        ({"holdout": 1.0}, "holdout = 1.0: expected a share from 0 to below 1"),
        ({"holdout": -0.1}, "holdout = -0.1"),
        ({"holdout": 0.1, "mode": "shadow"}, "holdout = 0.1: expected 0 in shadow mode"),
        ({"sticky": 0.0}, "sticky = 0.0: expected a positive number of seconds, 1e\\+10 at most"),
        ({"sticky": 1e11}, "sticky = 100000000000.0"),
        ({"sticky": 9.0, "mode": "shadow"}, "sticky = 9.0: expected None in shadow mode"),
        ({"late": "sometimes"}, "late = 'sometimes': expected 'keep' or 'revise'"),
        ({"loop": "open"}, "loop = 'open'"),
        ({"mode": []}, "mode = "),
    ],
)
def test_settings_that_cannot_be(settings, said):
    replica = Replica(MemoryLedger(), clock=Clock())
    with pytest.raises(ValueError, match=said):
        replica.configure("shop", explicit(**settings))
    assert replica.ledger.follow(replica.position)[0] == []


def test_settings_that_would_change_the_past():
    replica = new_replica(explicit())
    assert not replica.configure("shop", explicit())
    assert replica.configure("shop", explicit(exploration=0.1, window=5.0))
    assert replica.folds["shop"].spec.exploration == 0.1
    with pytest.raises(ValueError, match=r"family = .*Make a bandit of another name"):
        replica.configure("shop", explicit(Gaussian(sd=1.0)))
    with pytest.raises(ValueError, match="name = 'a b'"):
        replica.configure("a b", explicit())


def test_bodies_survive_added_fields():
    """Logs outlive versions: fields may be added at the end of a body, never moved."""
    body = msgspec.msgpack.encode([b"x", "a", 0, 1.0, 3, "p", 0.0, 0.0, 0.0])
    from belated.ledger.events import Decided

    assert msgspec.msgpack.decode(body, type=Decided).context == b""
    assert not msgspec.msgpack.decode(body, type=Decided).held_out
    assert msgspec.msgpack.decode(body, type=Decided).stretch is None
    assert msgspec.msgpack.decode(body, type=Decided).repeats == b""
