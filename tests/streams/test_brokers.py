"""A real Redis, and the broker that librdkafka brings for tests, behind `belated consume`."""

import json
import os
import signal
import subprocess
import sys
import time

import confluent_kafka as kafka
import pytest
import redis

from belated import Bandit, Bernoulli, DelayedOFUGLM
from belated.client import Client
from belated.commands.consume import _opened, consume
from belated.streams.redis_stream import RedisStream
from support.needed import program
from support.running_service import free_port, served

MATRIX = [[0.6, 0.0], [0.0, 0.8]]


@pytest.fixture
def server(tmp_path):
    """A Redis of the test's own: its address, and a connection."""
    port = free_port()
    command = [program("redis-server"), "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}/0"
    with redis.Redis.from_url(url) as connection:
        deadline = time.monotonic() + 30.0
        while True:
            try:
                connection.ping()
                break
            except redis.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield url, connection
    process.terminate()
    process.wait(timeout=10)


@pytest.fixture
def shop(tmp_path):
    """The address of a ledger, ids of its decisions, and a way to count its rewards."""
    url = f"sqlite:///{tmp_path}/shop.db"

    def opened():
        return Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(), ledger=url, name="shop")

    bandit = opened()
    ids = [bandit.decide(MATRIX).id for _ in range(12)]
    bandit.close()

    def n_observed():
        known = opened()
        n = known.n_observed
        known.close()
        return n

    return url, ids, n_observed


@pytest.mark.slow
def test_redis_from_a_stream_into_a_ledger(server, shop, capsys):
    (url, connection), (ledger, ids, n_observed) = server, shop
    for k, id in enumerate(ids):
        fields = {"decision_id": id, "reward": "1.0", "event_id": f"e{k}"}
        connection.xadd(
            "rewards", fields if k % 2 else {"json": json.dumps(fields | {"reward": 1})}
        )
    connection.xadd("rewards", {"decision_id": "nobody", "reward": "1"})
    connection.xadd("rewards", {"decision_id": ids[0], "reward": "much"})
    consume(url, "rewards", "belated", ledger=ledger, once=True)
    assert "12 accepted" in capsys.readouterr().out
    assert n_observed() == 12
    bad = [fields for _, fields in connection.xrange("rewards.bad")]
    assert [fields[b"reason"].split(b":")[0] for fields in bad] == [b"unknown", b"invalid"]
    assert bad[1][b"reward"] == b"much"
    assert connection.xpending("rewards", "belated")["pending"] == 0
    consume(url, "rewards", "belated", ledger=ledger, once=True)
    assert "handed in: nothing" in capsys.readouterr().out


@pytest.mark.slow
def test_redis_messages_that_were_not_acknowledged_come_again(server, shop, capsys, monkeypatch):
    """Those of this consumer at once, those of another when they were left for long enough."""
    (url, connection), (ledger, ids, n_observed) = server, shop
    for id in ids:
        connection.xadd("rewards", {"decision_id": id, "reward": "0"})
    for consumer in ("mine", "other"):
        crashed = RedisStream(url, "rewards", "belated", consumer)
        assert crashed.read(6) != []
        crashed.close()
    consume(url, "rewards", "belated", consumer="mine", ledger=ledger, once=True)
    assert "6 accepted" in capsys.readouterr().out
    monkeypatch.setattr("belated.streams.redis_stream.ABANDONED", 0)
    consume(url, "rewards", "belated", consumer="mine", ledger=ledger, once=True)
    assert "6 accepted" in capsys.readouterr().out
    assert n_observed() == 12


@pytest.mark.slow
def test_redis_to_a_service_until_sigterm(server, tmp_path):
    url, connection = server
    with served() as (service, _), Client(service) as client:
        client.put_bandit("shop", {"family": "bernoulli", "dim": 2})
        client.change_actions("shop", {"a": [1, 0], "b": [0, 1]})
        command = [sys.executable, "-m", "belated", "consume", url, "--stream", "rewards"]
        process = subprocess.Popen(
            [*command, "--url", service], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        ids = [client.decide("shop").decision_id for _ in range(5)]
        for id in ids:
            connection.xadd("rewards", {"decision_id": id, "reward": "1"})
        deadline = time.monotonic() + 60.0
        while client.bandit("shop").n_observed < 5:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert out == "handed in: 5 accepted\n"


@pytest.mark.slow
def test_kafka_by_the_broker_of_librdkafka(shop, capsys):
    """The mock broker speaks Kafka's protocol, with groups and offsets; it is no real Kafka.

    It lets nobody into a group that was left, so what a restart would read is read off the offsets.
    """
    ledger, ids, n_observed = shop
    producer = kafka.Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    address = f"{broker.host}:{broker.port}"
    for id in ids:
        producer.produce("rewards", json.dumps({"decision_id": id, "reward": 1.0}))
    producer.produce("rewards", "no json")
    assert producer.flush(10) == 0
    consume(f"kafka://{address}", "rewards", "belated", ledger=ledger, once=True)
    out = capsys.readouterr().out
    assert "12 accepted" in out
    assert "1 invalid" in out
    assert n_observed() == 12
    reader = kafka.Consumer({"bootstrap.servers": address, "group.id": "belated"})
    places = [
        kafka.TopicPartition("rewards", k)
        for k in producer.list_topics().topics["rewards"].partitions
    ]
    read_up = {place.partition: place.offset for place in reader.committed(places, timeout=10)}
    ends = {place.partition: reader.get_watermark_offsets(place)[1] for place in places}
    assert sum(ends.values()) == 13
    assert {k: max(end, 0) for k, end in read_up.items()} == ends
    reader.assign([kafka.TopicPartition("rewards.bad", place.partition, 0) for place in places])
    (bad,) = reader.consume(1, 20.0)
    assert bad.value() == b"no json"
    assert dict(bad.headers())["reason"].startswith(b"invalid: the message is not a JSON object")
    reader.close()


def test_an_address_of_no_known_kind_is_refused():
    for source in ("amqp://host", "kafka://", "redis"):
        with pytest.raises(ValueError, match=f"source = '{source}': expected redis://"):
            _opened(source, "rewards", "belated", None)
    with pytest.raises(ConnectionError, match="redis: "):
        _opened("redis://127.0.0.1:9/0", "rewards", "belated", None)
