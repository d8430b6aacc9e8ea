"""Traces: spans of requests, commits and news, with the id of the request and without secrets."""

import asyncio
import logging
import sys

import httpx2
import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from belated.ledger.replica import Replica
from belated.ledger.stores.memory import MemoryLedger
from belated.service import serving
from belated.service.app import new_app
from belated.service.service import Service
from belated.service.serving import ServeSettings
from belated.service.settings import spec_of
from belated.service.tracing import Tracing
from belated.service.writer import Writer
from belated.wire import BanditSettings
from support.service_client import ACTIONS, BrokenLedger

PARENT = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{PARENT}-b7ad6b7169203331-01", "X-Request-ID": "shop-17"}
SHOP = {"family": "bernoulli", "policy": "delayed-ofu-glm", "dim": 2}


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def asked(exporter):
    """A function that sends requests to a service, each with its method, path and body."""
    ledger = BrokenLedger()

    def ask(*requests, headers=HEADERS, before=lambda ledger: None):
        async def use():
            service = Service("memory://", ledger=ledger)
            service.read_log()
            before(ledger)
            provider = TracerProvider(shutdown_on_exit=False)
            provider.add_span_processor(SimpleSpanProcessor(exporter))
            transport = httpx2.ASGITransport(new_app(service, tracing=Tracing(provider)))
            async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
                sent = (client.request(m, p, json=b, headers=headers) for m, p, b in requests)
                answers = await asyncio.gather(*sent)
                await service.catch_up()
            return answers

        return asyncio.run(use())

    ask(("PUT", "/v1/bandits/shop", SHOP))
    ask(("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS}))
    exporter.clear()
    return ask


def by_name(exporter):
    spans = {}
    for span in exporter.get_finished_spans():
        spans.setdefault(span.name, []).append(span)
    return spans


def test_a_request_goes_on_with_the_trace_of_its_caller(asked, exporter):
    (answer,) = asked(("POST", "/v1/bandits/shop/decisions", {}))
    (span,) = by_name(exporter)["POST /v1/bandits/{name}/decisions"]
    assert f"{span.context.trace_id:032x}" == PARENT
    assert span.kind is SpanKind.SERVER
    assert dict(span.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/bandits/{name}/decisions",
        "http.response.status_code": 200,
        "url.path": "/v1/bandits/shop/decisions",
        "url.scheme": "http",
        "x_request_id": "shop-17",
        "belated.decision": answer.json()["decision_id"],
    }


def test_the_span_of_a_commit_lies_in_those_of_its_requests(asked, exporter):
    asked(*[("POST", "/v1/bandits/shop/decisions", {})] * 3)
    spans = by_name(exporter)
    requests = {span.context.span_id: span for span in spans["POST /v1/bandits/{name}/decisions"]}
    links = [(commit, link.context.span_id) for commit in spans["commit"] for link in commit.links]
    assert {id for _, id in links} == requests.keys()
    assert sum(commit.attributes["belated.drafts"] for commit in spans["commit"]) == 3
    for commit, id in links:
        assert requests[id].start_time <= commit.start_time + 1e6  # by two clocks
        assert commit.end_time <= requests[id].end_time + 1e6


def test_a_group_commit_is_linked_to_all_its_requests(exporter):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)

    async def use():
        replica = Replica(MemoryLedger())
        replica.configure("shop", spec_of(msgspec.convert(SHOP, BanditSettings)))
        writer = Writer(replica)
        writer.tracing = tracing

        async def serve():
            with tracing.tracer.start_as_current_span("request"):
                await writer.write([replica.actions_draft("shop", ACTIONS, [])])

        await asyncio.gather(serve(), serve(), serve())

    asyncio.run(use())
    spans = by_name(exporter)
    (commit,), (store,), (taking_in,) = spans["commit"], spans["store"], spans["take in"]
    requests = {span.context.span_id for span in spans["request"]}
    assert len(requests) == 3
    assert {link.context.span_id for link in commit.links} == requests
    assert commit.parent is None
    assert dict(commit.attributes) == {"belated.drafts": 3, "belated.events": 3}
    assert store.parent.span_id == taking_in.parent.span_id == commit.context.span_id
    assert commit.start_time == store.start_time <= store.end_time == taking_in.start_time
    assert taking_in.end_time == commit.end_time


def test_only_news_are_followed_with_a_span(asked, exporter):
    def elsewhere(ledger):
        replica = Replica(ledger)
        replica.catch_up()
        replica.register("shop", {"d": [0.1, 0.1]})

    asked(("GET", "/healthz", None))
    assert "follow the log" not in by_name(exporter)
    asked(("GET", "/healthz", None), before=elsewhere)
    (span,) = by_name(exporter)["follow the log"]
    assert dict(span.attributes) == {"belated.drafts": 0, "belated.events": 1}


def test_what_fails_is_an_error(asked, exporter):
    def broken(ledger):
        ledger.broken = True

    (answer,) = asked(("POST", "/v1/bandits/shop/decisions", {}), before=broken)
    assert answer.status_code == 503
    spans = by_name(exporter)
    (request,) = spans["POST /v1/bandits/{name}/decisions"]
    assert request.status.status_code is StatusCode.ERROR
    assert spans["commit"][0].status.description == "StoreUnavailableError"
    assert "take in" not in spans


def test_a_span_holds_neither_a_subject_nor_a_query(asked, exporter):
    asked(("DELETE", "/v1/bandits/shop/subjects/somebody?secret=1", None))
    asked(("GET", "/nowhere?secret=1", None))
    asked(("DELETE", "/v1/bandits/shop/subjects/somebody", None))
    spans = exporter.get_finished_spans()
    assert {"GET", "DELETE /v1/bandits/{name}/subjects/{subject}"} <= {s.name for s in spans}
    told = str([(span.name, dict(span.attributes), span.events) for span in spans])
    assert "somebody" not in told
    assert "secret" not in told


@pytest.mark.parametrize(
    ("variables", "traces", "on"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, False, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, False, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False, False),
        ({"OTEL_SDK_DISABLED": "true"}, True, False),
    ],
)
def test_an_option_or_the_usual_variables_switch_it_on(monkeypatch, variables, traces, on):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    tracing = serving._new_tracing(ServeSettings(ledger="memory:", traces=traces))
    assert (tracing is not None) == on
    if tracing is not None:
        assert tracing._provider.resource.attributes["service.name"] == "shop"
        tracing.stop()


def test_without_the_extra_variables_alone_stop_nobody(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "belated.service.tracing", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert serving._new_tracing(ServeSettings(ledger="memory:")) is None
    assert "pip install 'belated[tracing]'" in caplog.text
    with pytest.raises(ModuleNotFoundError, match=r"belated\[tracing\]"):
        serving.serve(ServeSettings(ledger="memory:", port=0, traces=True))


def test_a_collector_that_is_away_does_not_hold_up_the_end(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("belated.service.tracing.STOP_SECONDS", 0.1)
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    tracing = Tracing()
    tracing.committed([], 1, 1, 0.001, 0.002)
    tracing.stop()
