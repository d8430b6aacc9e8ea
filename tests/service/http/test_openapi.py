"""The OpenAPI document, and schemathesis on a toy API that is served."""

import json
import os
import subprocess
import sys

import httpx2
import jsonschema_rs
import pytest

from belated.service.http.access import Gate, KeyRing
from belated.service.http.request_ids import RequestIds
from support.toy_api import THINGS, TOY, ask, check_problem, ring_with, served, toy

# The document


def document_of(api):
    return ask(api.app(), "GET", "/openapi.json").json()


def test_the_document_of_one_operation():
    document = document_of(toy(Gate(KeyRing())))
    assert document["openapi"] == "3.1.0"
    assert document["info"] == {"title": "Shelves", "version": "1.0"}
    make = document["paths"][THINGS.replace("/a/", "/{name}/")]["post"]
    assert make["operationId"] == "make_thing"
    assert make["summary"] == "Put a thing on a shelf."
    assert make["description"] == "It gets an id of its own."
    assert make["parameters"] == [
        {
            "name": "name",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 20},
        }
    ]
    assert make["requestBody"] == {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/NewThing"}}},
    }
    assert make["security"] == [{"apiKey": ["decide"]}, {"bearer": ["decide"]}]
    assert set(make["responses"]) == {
        *["201", "400", "401", "403", "413", "414", "415", "422", "429", "431", "500"]
    }
    made = make["responses"]["201"]
    assert made["content"] == {
        "application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}
    }
    assert made["links"]["read_thing"] == {
        "operationId": "read_thing",
        "parameters": {"name": "$request.path.name", "id": "$response.body#/id"},
    }


def test_every_error_is_documented_as_a_problem():
    document = document_of(toy(Gate(KeyRing())))
    problem = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    for operation in (o for path in document["paths"].values() for o in path.values()):
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert answer["content"] == {"application/problem+json": problem}
    read = document["paths"]["/shelves/{name}/things/{id}"]["get"]["responses"]
    assert "`/problems/unknown-thing`" in read["404"]["description"]
    assert "Retry-After" in read["429"]["headers"]
    assert "WWW-Authenticate" in read["401"]["headers"]
    alive = document["paths"]["/alive"]["get"]["responses"]
    assert set(alive) == {"200", "414", "422", "431", "500"}


def test_query_parameters_are_documented():
    things = document_of(toy())["paths"]["/shelves/{name}/things"]["get"]
    [_, limit, above] = things["parameters"]
    assert (limit["name"], limit["in"], limit["required"]) == ("limit", "query", False)
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 100, "default": 10}
    assert above["schema"] == {"type": "number", "default": 0.0}
    assert "security" not in things  # of an API without a gate
    assert "401" not in things["responses"]


def test_schemas_are_valid_and_fit_real_documents():
    document = document_of(toy())
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)
    problem = {**document, "$ref": "#/components/schemas/ProblemDocument"}
    jsonschema_rs.validate(problem, ask(TOY, "GET", "/alive?x=1").json())
    assert document["components"]["schemas"]["NewThing"]["additionalProperties"] is False


def test_the_document_does_not_depend_on_the_run():
    code = (
        "from support import toy_api as t; from belated.service.http.access import *;"
        "print(t.ask(t.toy(Gate(KeyRing())).app(), 'GET', '/openapi.json').text)"
    )
    texts = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        texts.add(subprocess.check_output([sys.executable, "-c", code], env=env, text=True))
    assert len(texts) == 1
    assert json.loads(texts.pop()) == document_of(toy(Gate(KeyRing())))


# On a real server


def test_a_real_server():
    with served(TOY) as url, httpx2.Client(base_url=url) as client:
        headers = {"content-type": "application/json"}
        chunks = (b" " * 1000 for _ in range(10_000))  # chunked: no length is announced
        check_problem(client.post(THINGS, content=chunks, headers=headers), 413, "body-too-large")
        answer = client.post(THINGS, content=b" " * 10**7, headers=headers)
        check_problem(answer, 413, "body-too-large")
        assert client.post(
            THINGS, content=iter([b'{"label"', b': "a"}']), headers=headers
        ).is_success
        head = client.head("/shelves/none/things")
        assert (head.status_code, head.headers["content-length"], head.content) == (200, "2", b"")
        assert client.options("/alive").status_code == 204
        assert client.delete(f"{THINGS}/0").status_code in (204, 404)
        check_problem(client.get("/shelves/%ff/things"), 422, "invalid-request")


def schemathesis(url, key, folder, *options):
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"]
    command += ["--checks", "all", "--seed", "1", "--no-color", *options]
    command += ["-H", f"X-API-Key: {key}", "--suppress-health-check", "all"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.slow
def test_schemathesis_finds_nothing(tmp_path):
    ring, [text] = ring_with(("", ("read", "decide", "reward")))
    with served(RequestIds(toy(Gate(ring)).app())) as url:
        run = schemathesis(url, text, tmp_path, "-n", "50")
    assert run.returncode == 0, run.stdout
    assert "Stateful" in run.stdout


@pytest.mark.slow
def test_schemathesis_finds_a_mistake_that_only_links_show(tmp_path):
    ring, [text] = ring_with(("", ("read", "decide", "reward")))
    with served(RequestIds(toy(Gate(ring), keep_deleted=True).app())) as url:
        run = schemathesis(url, text, tmp_path, "-n", "50", "--phases", "stateful")
    assert run.returncode == 1
    assert "previously deleted" in run.stdout
