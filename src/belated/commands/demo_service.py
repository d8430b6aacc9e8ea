"""``belated demo-service``: the service with a simulated world behind it, so that the page moves.

The world uses the service as any program would: over HTTP, through the client. Rewards are seconds
late. In the world ``demo-checkout`` good news travels faster than bad, which the dashboard finds
out. Port and names are the demo's own, so that it is in nobody's way; visitors may make bandits and
actions beside it, which the world leaves alone.
"""

import asyncio
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn

from belated.client import AsyncClient, ServiceError
from belated.service.app import new_app
from belated.service.service import Service
from belated.service.serving import DRAIN_SECONDS, free_port

HOST, PORT = "127.0.0.1", 8788  # not the port of ``belated serve``
Delay = Callable[[random.Random, float], float | None]  # seconds, by reward; None: it never comes


@dataclass(frozen=True)
class World:
    """A bandit, and the people who answer to its choices."""

    name: str
    settings: dict[str, Any]
    actions: dict[str, dict[str, Any]]
    contexts: list[dict[str, Any]]
    success: dict[str, float]  # probability of a reward of 1, by action
    delay: Delay
    per_second: float
    liked: dict[str, str] = field(default_factory=dict)  # action liked by a context's first value


BANNERS = ("summer", "winter", "plain", "loud")
WORLDS = (
    World(
        name="demo-shop",
        settings={
            "family": "bernoulli",
            "features": {
                "categorical": {"banner": list(BANNERS), "device": ["phone", "desk"]},
                "interactions": [["banner", "device"]],
            },
            "exploration": 0.05,
            "baseline": "plain",
            "window": 60.0,
        },
        actions={name: {"banner": name} for name in BANNERS},
        contexts=[{"device": "phone"}, {"device": "desk"}],
        success={"summer": 0.35, "winter": 0.3, "plain": 0.3, "loud": 0.15},
        liked={"phone": "summer", "desk": "winter"},
        delay=lambda rng, reward: rng.expovariate(1 / 3.0),
        per_second=25.0,
    ),
    World(
        name="demo-newsletter",
        settings={
            "family": "bernoulli",
            "features": {"categorical": {"subject": ["question", "offer", "news"]}},
            "loop": "conversion",
            "window": 12.0,
            "exploration": 0.1,
            "baseline": "news",
        },
        actions={name: {"subject": name} for name in ("question", "offer", "news")},
        contexts=[{}],
        success={"question": 0.08, "offer": 0.25, "news": 0.12},
        # nobody reports that he will not buy
        delay=lambda rng, reward: rng.lognormvariate(1.0, 0.6) if reward else None,
        per_second=15.0,
    ),
    World(
        name="demo-checkout",
        settings={
            "family": "bernoulli",
            "features": {"categorical": {"layout": ["one page", "steps"]}},
            "exploration": 0.1,
            "baseline": "steps",
        },
        actions={name: {"layout": name} for name in ("one page", "steps")},
        contexts=[{}],
        success={"one page": 0.55, "steps": 0.45},
        delay=lambda rng, reward: rng.expovariate(1 / 0.5 if reward else 1 / 4.0),
        per_second=10.0,
    ),
)


def run_demo(*, port: int = PORT, seconds: float | None = None, seed: int = 1) -> None:
    """Serve, and simulate, until told to stop or for this many ``seconds``."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn stops, and then hands the signal on
    with TemporaryDirectory(prefix="belated-demo-") as folder:
        asyncio.run(_demo(Path(folder), free_port(HOST, port), seconds, seed))


async def _demo(folder: Path, port: int, seconds: float | None, seed: int) -> None:
    service = Service(f"sqlite:///{folder / 'demo.db'}")
    config = uvicorn.Config(
        new_app(service, allowed_hosts=()),
        host=HOST,
        port=port,
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    url = f"http://{HOST}:{port}/"
    playing = asyncio.create_task(_play(url, seed, service))
    await asyncio.wait([serving, playing], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    playing.cancel()
    with suppress(asyncio.CancelledError):
        await playing  # raises the error that ended the world, if any
    server.should_exit = True
    await serving


async def _play(url: str, seed: int, service: Service) -> None:
    print("making three bandits; the first time, their kernels are compiled", flush=True)
    async with AsyncClient(url, retries=20) as client:
        for world in WORLDS:
            await client.put_bandit(world.name, world.settings)
            await client.change_actions(world.name, world.actions)
        while service.replica.held:  # else everybody who comes meanwhile would try again and again
            await asyncio.sleep(0.05)
        print(f"dashboard: {url} (Ctrl-C stops)", flush=True)
        async with asyncio.TaskGroup() as group:
            for number, world in enumerate(WORLDS):
                group.create_task(_live(world, client, random.Random(seed + number)))


async def _live(world: World, client: AsyncClient, rng: random.Random) -> None:
    """Let people come one after the other, and answer each in his own time."""
    refusals: set[str] = set()
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(_one(world, client, rng, refusals))
            await asyncio.sleep(rng.expovariate(world.per_second))


async def _one(world: World, client: AsyncClient, rng: random.Random, refusals: set[str]) -> None:
    """Show one person something and send the answer, or note a refusal caused by a visitor.

    A visitor may have made a key or withdrawn all actions, say: each such reason is printed once.
    """
    try:
        await _meet(world, client, rng)
    except ServiceError as error:
        if error.problem.title not in refusals:
            refusals.add(error.problem.title)
            print(f"{world.name}: {error}", flush=True)


async def _meet(world: World, client: AsyncClient, rng: random.Random) -> None:
    context = rng.choice(world.contexts)
    decision = await client.decide(world.name, context=context or None)
    chance = world.success.get(decision.action)
    if chance is None or decision.decision_id is None:
        return  # nobody here knows a visitor's action: its reward is for the visitor to send
    likes = any(world.liked.get(value) == decision.action for value in context.values())
    reward = 1.0 if rng.random() < chance + (0.2 if likes else 0.0) else 0.0
    delay = world.delay(rng, reward)
    if delay is not None:
        await asyncio.sleep(delay)
        await client.reward(decision.decision_id, reward)
