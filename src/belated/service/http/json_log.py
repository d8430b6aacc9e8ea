"""The log of a service for machines: a line of JSON for each record."""

import logging
from typing import TextIO

import msgspec

from belated.service.http.request_ids import ID


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log. Lines of the access log, which has its own, have no ``level``."""

    time: float  # seconds since 1970
    level: str
    logger: str
    event: str
    x_request_id: str | None = None  # of the request that it is about
    error: str | None = None  # type
    detail: str | None = None  # message of the error
    traceback: str | None = None


class JsonLines(logging.Formatter):
    """Formats a record as a line of JSON.

    >>> told = logging.LogRecord("shop", logging.ERROR, "", 0, "%s is full", ("disk",), None)
    >>> JsonLines().format(told)
    '{"time":...,"level":"error","logger":"shop","event":"disk is full"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of a record."""
        error = record.exc_info[1] if record.exc_info else None
        line = Line(
            record.created,
            record.levelname.lower(),
            record.name,
            record.getMessage(),
            getattr(record, ID, None),
            None if error is None else type(error).__name__,
            None if error is None else str(error),
            self.formatException(record.exc_info) if record.exc_info and error else None,
        )
        return msgspec.json.encode(line).decode()


def write_json_log(stream: TextIO) -> None:
    """Let all that is logged in this process be lines of JSON, Python's warnings among them."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler])  # the first call counts
    logging.captureWarnings(True)
