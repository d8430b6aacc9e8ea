"""The service as an ASGI app."""

import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from belated.service.access import RateLimit
from belated.service.dashboard.page import dashboard_page
from belated.service.hosts import OwnHosts
from belated.service.logs import AccessLog
from belated.service.logs import logger as access_logger
from belated.service.metrics import Metrics
from belated.service.origins import OwnOrigins
from belated.service.personalizer import add_personalizer
from belated.service.routes import new_api
from belated.service.running import Service


def new_app(
    service: Service,
    limit: RateLimit | None = None,
    personalizer: str | None = None,
    allowed_hosts: Collection[str] | None = None,
    one_of_many: bool = False,
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
    one_of_many
        Whether other processes answer at the same address: each counts under its own ``pid``.
    """
    metrics = Metrics(service, one_of_many)

    async def scrape(_: Request) -> Response:
        page, media_type = await metrics.page()
        return Response(page, media_type=media_type)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    async def dashboard(_: Request) -> Response:
        html, policy = dashboard_page()
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
        return Response(html, media_type="text/html", headers=headers)

    api = new_api(service, limit)
    if personalizer is not None:
        add_personalizer(api, service, personalizer)
    app = api.app([Route("/", dashboard), Route("/metrics", scrape)], lifespan)
    app = OwnOrigins(app, service, allowed_hosts or ())
    if allowed_hosts is not None:
        app = OwnHosts(app, service, allowed_hosts)
    counted = _Counted(app, service)
    return AccessLog(counted) if access_logger.isEnabledFor(logging.INFO) else counted


class _Counted:
    """Tells the writer how many requests are open: it waits for those only."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.writer = app, service.writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        self.writer.open_requests += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.writer.open_requests -= 1
