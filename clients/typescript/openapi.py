"""Writes the OpenAPI document of the service to the file that is named: types are made of it."""

import asyncio
import sys
from pathlib import Path

import httpx2

from belated.service.app import new_app
from belated.service.service import Service


async def document() -> bytes:
    """Returns the document, asked of a service in this process that has no bandits."""
    transport = httpx2.ASGITransport(new_app(Service("memory://")))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return (await client.get("/openapi.json")).content


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(asyncio.run(document()))
