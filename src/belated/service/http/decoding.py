"""Requests as typed values: what does not fit is refused, saying where."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import astuple
from starlette.types import Receive

from belated.core.arguments import shown
from belated.service.http import problems
from belated.service.http.access import Headers
from belated.service.http.problems import Fault, Problem

MOST_DECODED_AGAIN = 100_000  # bytes of a body: to look for whole numbers takes 0.1 ms a kilobyte
MOST_MADE = 10_000  # objects and lists of a body that have no need to be counted
BYTES_EACH = 10  # of a body, for each object or list: rewards and actions have more
MOST_DIGITS = 15  # of a length: Python refuses to read a number of thousands of digits


def query_of(text: bytes) -> dict[str, str]:
    """The parameters of a query string, each of them once."""
    try:
        pairs = parse_qsl(
            text.decode("ascii"), keep_blank_values=True, strict_parsing=bool(text), errors="strict"
        )
    except ValueError as error:
        raise Problem(problems.INVALID, f"The query is not a=b&c=d in UTF-8: {error}.") from None
    query = dict(pairs)
    if len(query) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common()
        raise _invalid_parameter(twice, "Given more than once")
    return query


def parameters(texts: Mapping[str, str], type: Any) -> Any:
    """The parameters of a path or query as a Struct."""
    try:
        result = msgspec.convert(texts, type, strict=False)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise _invalid_parameter(where.rstrip("`"), what) from None
    for name, value in zip(type.__struct_encode_fields__, astuple(result), strict=True):
        if isinstance(value, float) and not isfinite(value):  # msgspec reads "nan" and "inf"
            raise _invalid_parameter(name, f"{shown(texts[name])} is not a finite number")
    return result


def _invalid_parameter(name: str, what: str) -> Problem:
    detail = f"{what} - in the parameter {shown(name)}." if name else f"{what}."
    return Problem(problems.INVALID, detail, errors=[Fault(what, parameter=name)])


def file_type(headers: Headers, allowed: Sequence[str]) -> str:
    """The media type of a body that is a file, one of those allowed."""
    sent = headers.get(b"content-type", b"").decode("latin-1")
    plain = sent.partition(";")[0].strip().lower()
    if plain not in allowed:
        expected = f"expected {', '.join(allowed)}"
        raise Problem(problems.NO_FILE, f"The body came as {shown(sent)}: {expected}.")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Problem(problems.NO_FILE, "The body came compressed, which is not supported.")
    return plain


def check_media_type(headers: Headers) -> None:
    """Refuse what is not JSON, or is compressed."""
    media_type = headers.get(b"content-type", b"")
    if media_type != b"application/json":  # spelt like this nearly always
        plain = media_type.partition(b";")[0].strip().lower()
        if plain != b"application/json":
            sent = f"as {shown(media_type.decode('latin-1'))}" if media_type else "without a type"
            raise Problem(problems.NOT_JSON, f"The body came {sent}.")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Problem(problems.NOT_JSON, "The body came compressed, which is not supported.")


async def read(receive: Receive, headers: Headers, most: int) -> bytes | None:
    """The body, of ``most`` bytes at most whatever was announced; None if the client left."""
    length = headers.get(b"content-length", b"")
    if length.isdigit() and (len(length) > MOST_DIGITS or int(length) > most):
        raise _too_large(most)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(most: int) -> Problem:
    return Problem(problems.BODY_TOO_LARGE, f"A body may have {most} bytes here: send several.")


def decoded(decoder: msgspec.json.Decoder[Any], raw: bytes) -> Any:
    """The body as its type. Lists are made whole before they are found to be too long."""
    made = raw.count(b"{") + raw.count(b"[")
    if made > max(MOST_MADE, len(raw) // BYTES_EACH):
        detail = f"A body of {len(raw)} bytes may have one object or list for each {BYTES_EACH}."
        raise Problem(problems.INVALID, detail)
    try:
        if not raw.isascii():
            raw.decode()  # a msgspec.Raw would let through what is not UTF-8
        return _decoded(decoder, raw)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        fault = Fault(what, pointer=pointer(where.rstrip("`")))
        raise Problem(problems.INVALID, f"{error}.", errors=[fault]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(problems.MALFORMED, f"{error}.") from None
    except RecursionError:
        raise Problem(problems.MALFORMED, "The body is nested too deeply.") from None


def _decoded(decoder: msgspec.json.Decoder[Any], raw: bytes) -> Any:
    """Decode; where msgspec sees a float for an int, 3.0 is tried as 3, which it is to OpenAPI."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error) or len(raw) > MOST_DECODED_AGAIN:
            raise
    return decoder.decode(msgspec.json.encode(_with_whole_numbers(msgspec.json.decode(raw))))


def _with_whole_numbers(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_with_whole_numbers(item) for item in value]
        case dict():
            return {name: _with_whole_numbers(item) for name, item in value.items()}
    return value


def pointer(path: str) -> str:
    """A path of msgspec as a JSON Pointer, as far as it is one.

    >>> pointer("$.rewards[3].reward")
    '#/rewards/3/reward'
    >>> pointer("$.features[...].x")  # in one of the values of a dict: msgspec says no more
    '#/features'
    """
    known = path.partition("[...]")[0].removeprefix("$")
    return "#" + re.sub(r"\.|\[", "/", known).replace("]", "")
