"""The HTTP toolkit on a toy API: answers, refusals, sizes, errors, declarations."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from belated.service.http.api import Api
from belated.service.http.decoding import pointer, query_of
from belated.service.http.openapi import Link
from belated.service.http.problems import Fault, Problem
from support.toy_api import (
    MAX_BYTES,
    ODD,
    THINGS,
    TOY,
    UNKNOWN_THING,
    Shelf,
    ask,
    check_problem,
    post,
    receiving,
    serve_once,
    toy,
)

# What goes well


def test_make_read_list_delete():
    app = toy().app()
    made = ask(app, "POST", THINGS, json={"label": "cup", "parts": [{"weight": 2}]})
    assert made.status_code == 201
    assert made.headers["content-type"] == "application/json"
    assert made.json() == {"id": 0, "label": "cup", "parts": [{"weight": 2.0}]}
    where = made.headers["location"]
    assert ask(app, "GET", where).json() == made.json()
    ask(app, "POST", THINGS, json={"label": "saucer"})
    assert [t["id"] for t in ask(app, "GET", THINGS).json()] == [1]  # above 0.0
    assert [t["id"] for t in ask(app, "GET", f"{THINGS}?above=-1&limit=1").json()] == [0]
    gone = ask(app, "DELETE", where)
    assert (gone.status_code, gone.content) == (204, b"")
    assert "content-length" not in gone.headers
    assert "content-type" not in gone.headers
    check_problem(ask(app, "GET", where), 404, "unknown-thing")


def test_members_of_a_problem():
    document = check_problem(ask(TOY, "GET", "/shelves/a/things/7"), 404, "unknown-thing")
    assert len(document.pop("x_request_id")) == 32
    assert document == {
        "type": "/problems/unknown-thing",
        "title": "There is no such thing",
        "status": 404,
        "detail": "No 7 here.",
        "shelf": "a",
    }


def test_members_cannot_take_the_place_of_the_standard_ones():
    problem = Problem(UNKNOWN_THING, "d", members={"status": 200}, errors=[Fault("f", "#/a")])
    assert json.loads(problem.response().body)["status"] == 404
    assert json.loads(problem.response().body)["errors"] == [{"detail": "f", "pointer": "#/a"}]


def test_head_is_get_without_a_body_and_options_lists_methods():
    full, head = ask(TOY, "GET", THINGS), ask(TOY, "HEAD", THINGS)
    assert (head.status_code, head.headers) == (200, full.headers)
    options = ask(TOY, "OPTIONS", THINGS)
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    assert ask(TOY, "GET", "/alive").text == "yes"


# What does not fit


def test_unknown_addresses_and_methods():
    check_problem(ask(TOY, "GET", "/nowhere"), 404, "not-found")
    check_problem(ask(TOY, "GET", "/alive/"), 404, "not-found")  # no redirect
    for method in ("PUT", "TRACE", "PURGE"):
        answer = ask(TOY, method, "/shelves/a/things/1")
        check_problem(answer, 405, "method-not-allowed")
        assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS"
    check_problem(ask(TOY, "POST", "/openapi.json"), 405, "method-not-allowed")


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, {"content-type": "x"}])
def test_another_media_type(headers):
    answer = ask(TOY, "POST", THINGS, content=b'{"label": "a"}', headers=headers)
    check_problem(answer, 415, "unsupported-media-type")


def test_media_types_that_are_json():
    for text in ("application/json", "Application/JSON ; charset=utf-8"):
        headers = {"content-type": text}
        answer = ask(TOY, "POST", THINGS, content=b'{"label": "a"}', headers=headers)
        assert answer.status_code == 201
    headers["content-encoding"] = "gzip"
    answer = ask(TOY, "POST", THINGS, content=b'{"label": "a"}', headers=headers)
    check_problem(answer, 415, "unsupported-media-type")


DEEP = b"[" * 9_000 + b"]" * 9_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"label": "a"} x',
        b'{"label": NaN}',
        b'{"label": Infinity}',
        b'{"label": "\xff"}',
        b'{"\xff": 1}',
        b'{"label": "\\ud800"}',
        b'\xef\xbb\xbf{"label": "a"}',
        '{"label": "a"}'.encode("utf-16"),
        b'{"label": "a\nb"}',
    ],
)
def test_malformed_bodies(body):
    check_problem(post(TOY, THINGS, body), 400, "malformed-body")


@pytest.mark.parametrize(
    "body",
    [
        b'{"value": %s}' % DEEP,
        b'{"value": 0, "raw": %s}' % DEEP,
        b'{"value": 0, "raw": "\xff"}',  # msgspec.Raw alone would keep it
        b'{"value": -Infinity}',
        b'{"value": [NaN]}',
    ],
)
def test_malformed_bodies_where_anything_goes(body):
    check_problem(post(ODD, "/anything", body), 400, "malformed-body")


@pytest.mark.parametrize(
    ("body", "where", "what"),
    [
        (b"[]", "#", "Expected `object`, got `array`"),
        (b"[" * 1900, "#", "Expected `object`, got `array`"),
        (b"{}", "#", "Object missing required field `label`"),
        (b'{"label": "a", "x": 1}', "#", "Object contains unknown field `x`"),
        (b'{"label": 1}', "#/label", "Expected `str`, got `int`"),
        (b'{"label": "a", "parts": [{"weight": 1}, {"weight": "1"}]}', "#/parts/1/weight", "Exp"),
        (b'{"label": "a", "parts": [{"weight": true}]}', "#/parts/0/weight", "Expected `float`"),
        (b'{"label": "a", "parts": [{"weight": 1e999}]}', "#/parts/0/weight", "Number out of"),
        (b'{"label": "a", "parts": [{"weight": %s}]}' % (b"9" * 999), "#/parts/0/weight", "Numb"),
        (b'{"label": "a", "sizes": {"x": 10}}', "#/sizes", "Expected `int` <= 9"),
        (b'{"label": "a", "sizes": {"x": %s}}' % (b"9" * 1900), "#/sizes", ""),
        (b'{"label": "a", "sizes": {"x": 1.5}}', "#/sizes", "Expected `int`"),
    ],
)
def test_bodies_of_another_type(body, where, what):
    document = check_problem(post(TOY, THINGS, body), 422, "invalid-request")
    [fault] = document["errors"]
    assert fault["pointer"] == where
    assert fault["detail"].startswith(what)
    assert document["detail"].startswith(fault["detail"])


def test_names_of_a_long_query_are_counted_once_each():
    """Each was counted among all: 40 ms for an address of 8 kB, also without a key."""
    query = b"&".join(b"%d=" % k for k in range(40_000))
    started = time.perf_counter()
    with pytest.raises(Problem, match="Given more than once - in the parameter '39999'"):
        query_of(query + b"&39999=")
    assert time.perf_counter() - started < 2.0


def test_detail_names_the_path():
    document = post(TOY, THINGS, b'{"label": "a", "parts": [{"weight": -1}]}').json()
    assert document["detail"] == "Expected `float` >= 0.0 - at `$.parts[0].weight`."


def test_of_equal_keys_the_last_counts():
    answer = post(TOY, THINGS, b'{"label": "a", "label": "b"}')
    assert answer.json()["label"] == "b"


def test_huge_ints():
    assert post(ODD, "/anything", b'{"value": %s}' % (b"9" * 40)).json() == 10**40 - 1
    check_problem(post(ODD, "/anything", b'{"value": %s}' % (b"9" * 9000)), 422, "invalid-request")


def test_whole_floats_are_ints_as_in_json_schema():
    assert post(ODD, "/many", b"[1, 2.0, 3e2]").json() == 303
    assert post(ODD, "/many", b"[1e300]").json() == int(1e300)
    body = b'{"label": "a", "sizes": {"x": 2.0}, "parts": [{"weight": 1.0}, {"weight": 0.5}]}'
    assert post(TOY, THINGS, body).json()["parts"] == [{"weight": 1.0}, {"weight": 0.5}]
    document = check_problem(post(ODD, "/many", b"[2.0, 1.5]"), 422, "invalid-request")
    assert document["errors"] == [{"detail": "Expected `int`, got `float`", "pointer": "#/1"}]
    deep = b"[" * 9_000 + b"]" * 9_000
    check_problem(post(ODD, "/many", b"[1.0, " + deep + b"]"), 400, "malformed-body")


def test_bodies_that_are_no_object():
    assert post(ODD, "/many", b"[1, 2]").json() == 3
    document = check_problem(post(ODD, "/many", b'[1, "2"]'), 422, "invalid-request")
    assert document["errors"] == [{"detail": "Expected `int`, got `str`", "pointer": "#/1"}]


@given(st.binary(max_size=60))
def test_no_bytes_are_an_internal_error(body):
    for app, path in ((TOY, THINGS), (ODD, "/anything"), (ODD, "/many")):
        assert post(app, path, body).status_code in (200, 201, 400, 422)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("limit=1&limit=2", "limit"),
        ("limit=1&limit=1", "limit"),
        ("above=nan", "above"),
        ("above=Infinity", "above"),
        ("above=1e999", "above"),
        ("page=1", None),
        ("limit", None),
        ("limit=1&&above=1", None),
        ("limit=%ff", None),
        ("%ff=1", None),
    ],
)
def test_queries(query, parameter):
    document = check_problem(ask(TOY, "GET", f"{THINGS}?{query}"), 422, "invalid-request")
    named = [fault.get("parameter") for fault in document.get("errors", [])]
    assert named in ([parameter], [])
    assert (parameter is None) or named


def test_a_query_where_none_is_expected():
    check_problem(ask(TOY, "GET", "/alive?x=1"), 422, "invalid-request")
    check_problem(ask(TOY, "GET", "/shelves/a/things/1?x"), 422, "invalid-request")


def test_path_parameters():
    for path, name in (("/shelves/A/things/1", "name"), ("/shelves/a/things/-1", "id")):
        document = check_problem(ask(TOY, "GET", path), 422, "invalid-request")
        assert document["errors"][0]["parameter"] == name


# Size


def test_size_is_checked_while_reading():
    body = b'{"label": "a"}'.ljust(MAX_BYTES)
    assert post(TOY, THINGS, body).status_code == 201
    check_problem(post(TOY, THINGS, body + b" "), 413, "body-too-large")
    chunks = [body[:1500], body[1500:] + b" ", b"never asked for"]
    messages = receiving(*chunks)
    assert serve_once(TOY, messages)[0]["status"] == 413
    assert next(messages)["body"] == b"never asked for"
    assert next(messages, None) is None


@pytest.mark.parametrize("length", [b"%d" % (MAX_BYTES + 1), b"9" * 30, b"9" * 6000])
def test_an_announced_size_is_not_read(length):
    messages = receiving(b"never asked for")
    assert serve_once(TOY, messages, [(b"content-length", length)])[0]["status"] == 413
    assert next(messages)["body"] == b"never asked for"


def test_an_announcement_is_not_believed():
    messages = receiving(b" " * (MAX_BYTES + 1))
    assert serve_once(TOY, messages, [(b"content-length", b"10")])[0]["status"] == 413


def test_nothing_is_answered_to_a_client_that_left():
    messages = iter([*receiving(b"{"), {"type": "http.disconnect"}])
    assert serve_once(TOY, messages) == []


# Errors that nobody foresaw


def test_internal_errors_tell_nothing_and_are_logged(caplog):
    answer = ask(ODD, "GET", "/mistake?token=1", raises=True)  # the query is refused first
    check_problem(answer, 422, "invalid-request")
    answer = ask(ODD, "GET", "/mistake", raises=True)
    check_problem(answer, 500, "internal-error")
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text
    [record] = caplog.records
    assert record.message == f"GET /mistake, request {answer.json()['x_request_id']}"
    assert record.exc_info[0] is ZeroDivisionError


def test_a_store_that_is_away_is_worth_another_try(caplog):
    answer = ask(ODD, "GET", "/full", raises=True)
    document = check_problem(answer, 503, "store-unavailable")
    assert answer.headers["retry-after"] == "1"
    assert document["retry_after"] == 1
    assert "secret" not in answer.text
    assert caplog.messages == []  # the service says so, once an outage


def test_an_answer_that_has_begun_is_cut_off(caplog):
    with pytest.raises(ZeroDivisionError):
        ask(ODD, "GET", "/broken-stream", raises=True)


def test_errors_of_starlette_routes():
    async def page(request):
        return PlainTextResponse("page")

    app = toy().app(more=[Route("/page", page)])
    assert ask(app, "GET", "/page").text == "page"
    answer = ask(app, "POST", "/page")
    check_problem(answer, 405, "method-not-allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


# Declarations


class Loose(Struct):
    name: str


def declared(handler, method="GET", path="/", answers=None, needs=None):
    Api("Bad", "1").route(
        method, path, answers={200: None} if answers is None else answers, needs=needs
    )(handler)


def test_declarations_that_cannot_work():
    async def nothing() -> None:
        """Nothing."""

    async def loose(path: Loose) -> None:
        """A path that allows unknown fields."""

    async def text(query: str) -> None:
        """A query that is no Struct."""

    async def shelf(path: Shelf) -> None:
        """A path with a name."""

    async def other(request: Shelf) -> None:
        """A parameter of another name."""

    async def undocumented() -> None:
        pass

    def blocking() -> None:
        """Not async."""

    declared(nothing)
    for arguments, message in (
        ({"handler": nothing, "method": "get"}, "method = 'get': expected one of GET"),
        ({"handler": nothing, "needs": "write"}, "needs = 'write': expected one of read"),
        ({"handler": nothing, "answers": {}}, "answers = {}"),
        ({"handler": nothing, "path": "/{name}"}, "path = '/{name}': expected these in braces: n"),
        ({"handler": shelf, "path": "/{shelf}"}, "expected these in braces: name"),
        ({"handler": shelf, "path": "/{name:int}"}, "expected these in braces: name"),
        ({"handler": loose, "path": "/{name}"}, "path = .*Loose.*forbid_unknown_fields=True"),
        ({"handler": text}, "query = <class 'str'>: expected a msgspec.Struct"),
        ({"handler": other}, "parameter = 'request': expected one of path, query, body, call"),
        ({"handler": undocumented}, "handler = .*docstring"),
        ({"handler": blocking}, "handler = .*async"),
    ):
        with pytest.raises(ValueError, match=message):
            declared(**arguments)


def test_names_methods_and_links_that_meet():
    async def nothing() -> None:
        """Nothing."""

    async def something() -> None:
        """Something."""

    api = Api("Bad", "1")
    api.route("GET", "/", answers={200: None}, needs=None)(nothing)
    with pytest.raises(ValueError, match="handler = 'nothing': expected a name that no other"):
        api.route("GET", "/other", answers={200: None}, needs=None)(nothing)
    with pytest.raises(ValueError, match="method = 'GET': expected one that / has not yet"):
        api.route("GET", "/", answers={200: None}, needs=None)(something)
    for link, message in (
        (Link("nowhere"), "link.operation = 'nowhere': expected one of nothing, something"),
        (Link("nothing", {"id": "$url"}), "link.parameters = 'id'"),
    ):
        api = Api("Bad", "1")
        api.route("GET", "/", answers={200: None}, needs=None)(nothing)
        api.route("GET", "/x", answers={200: None}, needs=None, links=[link])(something)
        with pytest.raises(ValueError, match=message):
            api.app()


def test_pointers():
    assert pointer("") == "#"
    assert pointer("$") == "#"
    assert pointer("$[2][0].a") == "#/2/0/a"
    assert pointer("$.a[...][0]") == "#/a"
