"""Clients of the service: decisions and rewards over HTTP, sent again if that may help.

``Client`` waits for each answer; the methods of ``AsyncClient`` are the same, to be awaited. Both
need the extra ``belated[client]``, or the distribution ``belated-client``, which is the client and
nothing else.

>>> from belated.client import Client
>>> client = Client("http://127.0.0.1:8787", key=None, timeout=2.0, retries=5)
>>> client.close()
"""

from belated.core.extras import extra

with extra("client", instead="pip install belated-client, the client alone"):
    from belated.client.asynchronous import AsyncClient
    from belated.client.calls import ServiceError
    from belated.client.synchronous import Client

__all__ = ["AsyncClient", "Client", "ServiceError"]
