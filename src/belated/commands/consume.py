"""``belated consume``: rewards from a stream into a ledger, or to a service."""

import signal
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from belated.commands.rewards import Key, LedgerUrl, ServiceUrl, Whose, receiver

if TYPE_CHECKING:
    from belated.streams.consuming import Stream


def consume(
    source: Annotated[str, typer.Argument(help="redis://host:6379/0 or kafka://host:9092")],
    stream: Annotated[str, typer.Option(help="Name of the stream, or of the topic.")],
    group: Annotated[str, typer.Option(help="Name of the consumer group.")] = "belated",
    consumer: Annotated[
        str | None, typer.Option(help="Redis: name of this consumer; default the machine's.")
    ] = None,
    ledger: LedgerUrl = None,
    url: ServiceUrl = None,
    key: Key = None,
    bandit: Whose = None,
    once: Annotated[bool, typer.Option(help="Stop when there is nothing to read.")] = False,
) -> None:
    """Hand in the rewards of a stream of Redis or a topic of Kafka, until Ctrl-C or SIGTERM.

    A message is {"decision_id": ..., "reward": ..., "at": ..., "event_id": ...}, the last two if
    wanted. It is acknowledged after the commit. What cannot be used goes to NAME.bad. Where the
    ledger is away, it is tried again; where the stream is away, the command ends.
    """
    from belated.streams.consuming import consume as run

    ended = Event()
    with receiver(ledger, url, key, bandit) as (_, send):
        opened = _opened(source, stream, group, consumer)
        before = {
            n: signal.signal(n, lambda *_: ended.set()) for n in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            counts = run(opened, send, ended=ended, once=once)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            opened.close()
    told = ", ".join(f"{n} {status}" for status, n in counts.items()) or "nothing"
    typer.echo(f"handed in: {told}")


def _opened(source: str, stream: str, group: str, consumer: str | None) -> "Stream":
    """Returns the stream that an address names."""
    from belated.core.arguments import wrong

    kind, _, servers = source.partition("://")
    if kind in ("redis", "rediss", "unix") and servers:
        from belated.streams.redis_stream import RedisStream

        return RedisStream(source, stream, group, consumer)
    if kind == "kafka" and servers:
        from belated.streams.kafka_topic import KafkaTopic

        return KafkaTopic(servers, stream, group)
    raise wrong("source", source, "redis://host:port/database or kafka://host:port")
