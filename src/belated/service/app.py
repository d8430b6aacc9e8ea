"""The service as an ASGI app."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from belated.service.dashboard.page import dashboard_page
from belated.service.http.access import RateLimit
from belated.service.http.access_log import AccessLog
from belated.service.http.access_log import logger as access_logger
from belated.service.http.hosts import other_host
from belated.service.http.limits import MAX_BODY
from belated.service.http.origins import other_origin
from belated.service.http.request_ids import RequestIds, request_id
from belated.service.metrics import Metrics
from belated.service.personalizer import add_personalizer
from belated.service.reloading import Reloading
from belated.service.routes import new_api
from belated.service.service import Service
from belated.service.workers import Board, UpToDate, until_ready

if TYPE_CHECKING:  # an extra
    from belated.service.tracing import Tracing


def new_app(
    service: Service,
    limit: RateLimit | None = None,
    personalizer: str | None = None,
    allowed_hosts: Collection[str] | None = None,
    board: Board | None = None,
    max_body: int = MAX_BODY,
    reloading: Reloading | None = None,
    tracing: "Tracing | None" = None,
) -> ASGIApp:
    """Everything that is served, with what happens by itself while it is.

    Parameters
    ----------
    limit
        On the rate of each key.
    personalizer
        The bandit behind the Personalizer endpoints, which are there for it.
    allowed_hosts
        To which names to answer without keys, beside those of this machine. None: to all.
    board
        Where the processes that answer at the same address tell each other what they have written;
        each of them counts under its own ``pid``. None: there is only this one.
    max_body
        Bytes that the body of a request may have.
    reloading
        Is told to listen for SIGHUP; None: that ends the process.
    tracing
        Makes spans; None: there are none.
    """
    metrics = Metrics(service, board is not None)

    async def scrape(_: Request) -> Response:
        page, media_type = await metrics.page()
        return Response(page, media_type=media_type)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        await service.start()
        if reloading is not None:
            reloading.listen()
        if board is not None and not board.is_first:
            await until_ready(service)  # others answer meanwhile; the first says that it starts
        yield
        await service.stop()
        if tracing is not None:
            await asyncio.to_thread(tracing.stop)

    async def dashboard(_: Request) -> Response:
        html, policy = dashboard_page()
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
        return Response(html, media_type="text/html", headers=headers)

    api = new_api(service, limit, max_body)
    if personalizer is not None:
        add_personalizer(api, service, personalizer)
    app = api.app([Route("/", dashboard), Route("/metrics", scrape)], lifespan)
    app = _OwnPages(app, service, allowed_hosts)
    if board is not None:
        app = UpToDate(app, service, board)
    if tracing is not None:
        from belated.service.tracing import Traced

        service.writer.tracing, app = tracing, Traced(app, tracing)
    return RequestIds(AccessLog(app) if access_logger.isEnabledFor(logging.INFO) else app)


class _OwnPages:
    """Refuses what web pages of others send; ``allowed`` is None where every host is answered.

    Only as long as there are no keys: a page does not know them, and a browser adds none by itself.
    Before the log is read, that cannot be told, and nothing is served that a page could use.
    """

    def __init__(self, app: ASGIApp, service: Service, allowed: Collection[str] | None) -> None:
        self.app, self.service, self.any_host = app, service, allowed is None
        self.allowed = {name.lower() for name in allowed or ()}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and self.service.ready and self.service.ring.is_open:
            refusal = None if self.any_host else other_host(scope, self.allowed)
            refusal = refusal or other_origin(scope, self.allowed)
            if refusal is not None:
                return refusal.response(request_id(scope))(scope, receive, send)
        return self.app(scope, receive, send)
