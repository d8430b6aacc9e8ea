"""A topic of Kafka, read by a consumer group."""

from collections.abc import Sequence
from time import monotonic
from typing import Any

from belated.core.extras import extra
from belated.streams.consuming import Message

with extra("streams"):
    import confluent_kafka as kafka

WAIT = 1.0  # seconds for which a read waits
JOINING = 20.0  # seconds until a new member of a group should have read its partitions


class KafkaTopic:
    """See ``consuming.Stream``. The value of a message is a reward as a JSON object.

    Offsets are committed after the ledger's commit. Bad messages go to the topic ``NAME.bad``, with
    the reason in the header ``reason``; they are there before offsets are committed.

    Parameters
    ----------
    servers
        Addresses of brokers, such as ``localhost:9092``, separated by commas.
    name, group
        Of the topic and of the group. A new group begins with the first message.
    options
        Further settings of librdkafka, by name.
    """

    def __init__(
        self, servers: str, name: str, group: str, options: dict[str, Any] | None = None
    ) -> None:
        known = {"bootstrap.servers": servers, **(options or {})}
        self._name = name
        self._producer: Any = kafka.Producer(known)
        settings = {
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
        self._consumer: Any = kafka.Consumer(known | settings)
        self._read_up: set[int] = set()  # partitions of which every message was read
        self._consumer.subscribe([name])
        self._patience = monotonic() + JOINING

    def read(self, most: int) -> list[Message]:
        """Returns the next messages; none when all are read, or after a second without any."""
        while True:
            found = self._messages(most)
            own = {place.partition for place in self._consumer.assignment()}
            if found or (own and own <= self._read_up) or monotonic() > self._patience:
                return found

    def _messages(self, most: int) -> list[Message]:
        """Returns what has come within a second; raises what the broker said of an error."""
        messages = []
        for message in self._consumer.consume(most, WAIT):
            error = message.error()
            if error is None:
                self._read_up.discard(message.partition())
                messages.append(Message(message, message.value() or b""))
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                self._read_up.add(message.partition())
            elif error.code() != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART and not error.retriable():
                raise ConnectionError(f"kafka: {error.str()}")
        return messages

    def finish(self, messages: Sequence[Message], bad: Sequence[tuple[Message, str]]) -> None:
        """See ``consuming.Stream``."""
        for message, reason in bad:
            headers = [("reason", reason.encode())]
            self._producer.produce(f"{self._name}.bad", message.content, headers=headers)
        if self._producer.flush(60.0):
            raise TimeoutError(f"{self._name}.bad: the broker took no messages for a minute")
        ends: dict[int, int] = {}
        for message in messages:
            ends[message.place.partition()] = message.place.offset() + 1
        places = [kafka.TopicPartition(self._name, *end) for end in ends.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except kafka.KafkaException as error:
            raise ConnectionError(f"kafka: {error}") from error

    def close(self) -> None:
        """See ``consuming.Stream``."""
        self._consumer.close()
