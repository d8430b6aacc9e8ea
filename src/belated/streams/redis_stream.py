"""A stream of Redis, read by a consumer group."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from belated.core.extras import extra
from belated.streams.consuming import Message

with extra("streams"):
    import redis

WAIT = 1_000  # milliseconds for which a read waits
ABANDONED = 60_000  # milliseconds after which a message of another consumer is taken over
NUMBERS = ("reward", "at")  # fields whose texts may be numbers
LOOK_EVERY = 10.0  # seconds between looks for such messages


class RedisStream:
    """See ``consuming.Stream``. A message has the fields of a reward, or one field with JSON.

    Messages that this consumer read and did not acknowledge, as after a crash, come first; those of
    others are taken over when they have waited for a minute. Bad messages go to the stream
    ``NAME.bad`` with their reason, in one transaction with their acknowledgement.

    Parameters
    ----------
    url
        Such as ``redis://localhost:6379/0``.
    name, group
        Of the stream and of the group, which is made where it is missing, from the first message.
    consumer
        Name of this consumer, the same after a restart; that of the machine by default.
    """

    def __init__(self, url: str, name: str, group: str, consumer: str | None = None) -> None:
        self._redis: Any = redis.Redis.from_url(url, protocol=2)
        self._name, self._group = name, group
        self._consumer = consumer or socket.gethostname()
        try:
            with _named_errors():
                self._redis.xgroup_create(name, group, id="0", mkstream=True)
        except ConnectionError as error:
            if "BUSYGROUP" not in str(error):  # it is there already
                raise
        self._own: str | None = "0"  # where unfinished messages of this consumer go on
        self._looked = 0.0

    def read(self, most: int) -> list[Message]:
        """Returns unfinished messages first, then new ones."""
        if self._own is not None:
            messages = self._read(self._own, most)
            self._own = messages[-1].place if messages else None
            if messages:
                return messages
        if monotonic() - self._looked > LOOK_EVERY:
            self._looked = monotonic()
            with _named_errors():
                _, taken, *_ = self._redis.xautoclaim(
                    self._name, self._group, self._consumer, ABANDONED, count=most
                )
            if taken:
                return [Message(place, _content(fields)) for place, fields in taken]
        return self._read(">", most)

    def _read(self, after: str, most: int) -> list[Message]:
        with _named_errors():
            answer = self._redis.xreadgroup(
                self._group, self._consumer, {self._name: after}, count=most, block=WAIT
            )
        found = [pair for _, pairs in answer or () for pair in pairs]
        return [Message(place, _content(fields or {})) for place, fields in found]

    def finish(self, messages: Sequence[Message], bad: Sequence[tuple[Message, str]]) -> None:
        """See ``consuming.Stream``."""
        with _named_errors(), self._redis.pipeline(transaction=True) as pipe:
            for message, reason in bad:
                content = message.content
                fields = dict(content) if isinstance(content, Mapping) else {"json": content}
                pipe.xadd(f"{self._name}.bad", {**fields, "reason": reason, "id": message.place})
            pipe.xack(self._name, self._group, *[message.place for message in messages])
            pipe.execute()

    def close(self) -> None:
        """See ``consuming.Stream``."""
        self._redis.close()


@contextmanager
def _named_errors() -> Iterator[None]:
    """Turns errors of Redis into those of connections, which are shown in a line."""
    try:
        yield
    except redis.RedisError as error:
        raise ConnectionError(f"redis: {error}") from error


def _content(fields: Mapping[bytes, bytes]) -> bytes | Mapping[str, Any]:
    """Returns the JSON of a message with one field, or all its fields, numbers as such."""
    if len(fields) == 1:
        return next(iter(fields.values()))
    texts = {key.decode(errors="replace"): v.decode(errors="replace") for key, v in fields.items()}
    return {key: _number(text) if key in NUMBERS else text for key, text in texts.items()}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # it is named as it came
