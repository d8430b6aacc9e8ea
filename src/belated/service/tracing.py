"""Traces by OpenTelemetry: a span for each request, each commit and all news of the log.

Starlette's own middleware is not used: it puts the query and the whole path of a request into a
span, and so the names of subjects, which are to be erased when somebody asks for it.
"""

import os
import threading
import time
from collections.abc import Iterable
from typing import Any

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from belated.service.http.access_log import DECISION, KEY, public_path
from belated.service.http.request_ids import ID, request_id

STOP_SECONDS = 2.0  # for spans to reach a collector, when the service ends
NAME = "OTEL_SERVICE_NAME"


class Tracing:
    """The spans of a service.

    Parameters
    ----------
    provider
        Of tracers. By default, spans go to the collector that the variables OTEL_... name.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider or _exporting()
        self.tracer = self._provider.get_tracer("belated")

    def mark(self) -> SpanContext:
        """Returns what a commit is linked to: the span of the request that is served now."""
        return get_current_span().get_span_context()

    def committed(
        self,
        marks: Iterable[SpanContext | None],
        n_drafts: int,
        n_events: int,
        store_seconds: float,
        seconds: float,
        error: Exception | None = None,
    ) -> None:
        """Make the span of a commit, or of news that other processes wrote, now that it is over.

        Of these ``seconds``, the store took the first ``store_seconds``. A look at the log that
        found nothing leaves no trace.
        """
        if not (n_drafts or n_events or error):
            return
        end = time.time_ns()
        start, stored = end - int(seconds * 1e9), end - int((seconds - store_seconds) * 1e9)
        span = self.tracer.start_span(
            "commit" if n_drafts else "follow the log",
            context=Context(),  # it belongs to all its requests, not to one of them
            links=[Link(mark) for mark in marks if mark is not None and mark.is_valid],
            attributes={"belated.drafts": n_drafts, "belated.events": n_events},
            start_time=start,
        )
        inside = set_span_in_context(span, Context())
        self.tracer.start_span("store", inside, start_time=start).end(stored)
        if error is None:
            self.tracer.start_span("take in", inside, start_time=stored).end(end)
        else:
            span.set_status(StatusCode.ERROR, type(error).__name__)
        span.end(end)

    def stop(self) -> None:
        """Send what is left, if a collector takes it in time."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(STOP_SECONDS)


class Traced:
    """An ASGI app around another one: a span for each request."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self.app, self.tracer = app, tracing.tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        with self.tracer.start_as_current_span(
            scope["method"],
            propagate.extract(headers),
            SpanKind.SERVER,
            record_exception=False,  # its words may hold anything
        ) as span:

            async def noting_send(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            try:
                await self.app(scope, receive, noting_send)
            finally:
                span.set_attributes(_attributes(scope))
                if "route" in scope:
                    span.update_name(f"{scope['method']} {scope['route'].path}")
                    span.set_attribute("http.route", scope["route"].path)


def _attributes(scope: Scope) -> dict[str, Any]:
    state = scope.get("state", {})
    told = {f"belated.{name}": state[name] for name in (KEY, DECISION) if state.get(name)}
    return told | {
        "http.request.method": scope["method"],
        "url.path": public_path(scope),
        "url.scheme": scope.get("scheme", "http"),
        ID: request_id(scope),
    }


def _exporting() -> TracerProvider:
    """Returns a provider as the variables OTEL_... say, with a name for those that give none."""
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault(NAME, "belated")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
