"""Examples of every command, which its ``--help`` ends with; tests parse each of them."""

from collections.abc import Sequence

import typer

SHOP = "sqlite:///shop.db"
EXAMPLES: dict[str, Sequence[str]] = {
    "": (
        "belated demo",
        "belated list policies",
        "belated delays log.csv",
        "belated serve --config bandits.toml",
    ),
    "list": (
        "belated list policies",
        "belated list delays --json",
        "belated list policies --markdown > docs/algorithms.md",
    ),
    "demo": ("belated demo", "belated demo --rounds 5000 --runs 30 --out pictures"),
    "demo-service": ("belated demo-service", "belated demo-service --port 0 --seconds 60"),
    "reproduce": (
        "belated reproduce",
        "belated reproduce --only logistic --only d=5,E=100 --runs 5 --horizon 2000",
        "belated reproduce --full --policy thompson",
    ),
    "simulate": (
        "belated simulate --policy thompson --policy ducb-ridge:c=0.5 --delay exponential:500",
        "belated simulate --family bernoulli --delay empirical:law.json --out mine",
        "belated simulate --runs 30 mine.toml",
    ),
    "compare": (
        "belated compare --policies all-logistic --delay exponential:500",
        "belated compare --world shop",
        "belated compare --world shop --policies thompson,greedy --peers vw-bag --seeds 5",
        "belated compare --world rare --world drift --decisions 5000 --peers none",
    ),
    "delays": (
        "belated delays log.csv",
        "belated delays log.parquet --by action --page delays.html --law law.json",
        f"belated delays {SHOP} --bandit banners --json",
        "belated delays log.csv --loop conversion --window 7d --map time=shown,reward-time=bought",
    ),
    "evaluate": (
        "belated evaluate log.parquet --policy uniform --policy rule.py:play --context device",
        f"belated evaluate {SHOP} --policy adaptive-thompson --loop conversion --window 7d",
    ),
    "plan": (
        "belated plan log.csv --map action=banner --context device --loop conversion --window 7d",
        "belated plan log.csv --policy adaptive-thompson --policy thompson --page plan.html",
    ),
    "lift": (
        f"belated lift shop --ledger {SHOP}",
        f"belated lift shop --ledger {SHOP} --level 0.9 --json",
    ),
    "delay-cost": (
        "belated delay-cost exponential:24 --per-day 2000 --dim 10",
        "belated delay-cost empirical:law.json --per-day 500 --dim 5 --batch-minutes 1440",
    ),
    "audit": (
        "belated audit",
        "belated audit --policy glb-omd --family poisson --delay lomax:50 --runs 400",
    ),
    "rewards": (
        f"belated rewards purchases.csv --ledger {SHOP}",
        "belated rewards purchases.csv --url http://127.0.0.1:8787 --bandit shop",
        f"belated rewards sales.csv --ledger {SHOP} --map decision_id=session,reward=amount",
    ),
    "consume": (
        "belated consume redis://localhost:6379/0 --stream rewards --url http://127.0.0.1:8787",
        f"belated consume kafka://localhost:9092 --stream rewards --ledger {SHOP} --once",
    ),
    "score": (
        "belated score model.json --spool made.jsonl --url http://127.0.0.1:8787",
        "belated score http://127.0.0.1:8787/v1/bandits/shop/model --seed 1",
    ),
    "retrain": (
        f"belated retrain shop --policy thompson --ledger {SHOP}",
        f"belated retrain shop --half-life 50000 --ledger {SHOP} --promote",
        f"belated retrain shop --back --ledger {SHOP} --promote",
    ),
    "serve": (
        "belated serve",
        "belated serve --ledger sqlite:////var/lib/belated/shop.db --config bandits.toml",
        "belated serve --ledger postgresql://host/belated --workers 4 --access-log",
    ),
    "bandits": ("belated bandits list", f"belated bandits show shop --ledger {SHOP}"),
    "bandits create": (
        "belated bandits create prices --family gaussian:sd=2 --dim 2"
        """ --actions '{"low": [1, 0], "high": [0, 1]}'""",
        "belated bandits create shop --family bernoulli --window 604800 --default-reward 0"
        """ --features '{"categorical": ["banner", "device"]}'""",
    ),
    "bandits list": ("belated bandits list", f"belated bandits list --ledger {SHOP} --json"),
    "bandits show": ("belated bandits show shop", f"belated bandits show shop --ledger {SHOP}"),
    "keys": ("belated keys create prometheus --scope read", "belated keys list"),
    "keys create": (
        'belated keys create "web server" --scope decide --scope reward --bandit shop',
        "belated keys create admin --scope admin --ledger postgresql://host/belated",
    ),
    "keys list": ("belated keys list", f"belated keys list --ledger {SHOP} --json"),
    "keys revoke": ("belated keys revoke 3f9c02", f"belated keys revoke 3f9c02 --ledger {SHOP}"),
    "ledger": (f"belated ledger verify {SHOP}", f"belated ledger backup {SHOP} --out copy.db"),
    "ledger export": (
        f"belated ledger export {SHOP} --out events.jsonl",
        f"belated ledger export {SHOP} --joined --out log.csv --since 2026-03-01",
    ),
    "ledger import": (
        f"belated ledger import {SHOP} events.jsonl",
        f"belated ledger import {SHOP} old.csv --context device --dry-run"
        " --map id=session,time=shown,action=banner,reward=bought",
    ),
    "ledger verify": (f"belated ledger verify {SHOP}", f"belated ledger verify {SHOP} --json"),
    "ledger replay": (
        f"belated ledger replay {SHOP}",
        f"belated ledger replay {SHOP} --policy delayed-ofu-glm:delta=0.1 --until 2026-03-01",
    ),
    "ledger snapshot": (
        f"belated ledger snapshot {SHOP}",
        f"belated ledger snapshot {SHOP} --folder /var/lib/belated/snapshots",
    ),
    "ledger restore": (
        f"belated ledger restore {SHOP} --until 2026-03-31 --out sqlite:///then.db",
    ),
    "ledger compact": (
        f"belated ledger compact {SHOP} --older-than 400d --dry-run",
        f"belated ledger compact {SHOP} --older-than 52w",
    ),
    "ledger backup": (f"belated ledger backup {SHOP} --out shop-copy.db",),
    "ledger retain": (
        f"belated ledger retain {SHOP} --older-than 90d --dry-run",
        f"belated ledger retain {SHOP} --older-than 90d",
    ),
    "cache": ("belated cache path", "belated cache warm"),
    "cache warm": ("belated cache warm", "belated cache warm --config bandits.toml"),
    "cache clear": ("belated cache clear",),
    "cache path": ("belated cache path",),
}


def add_examples(app: typer.Typer, path: str = "") -> None:
    """End the help of a program, of its groups and of their commands with their examples."""
    app.info.epilog = _epilog(path)
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        command.epilog = _epilog(f"{path} {name}".strip())
    for group in app.registered_groups:
        assert group.typer_instance is not None
        add_examples(group.typer_instance, f"{path} {group.name}".strip())


def _epilog(path: str) -> str | None:
    r"""Returns the examples as a block; ``\b`` keeps its lines as they are."""
    lines = [f"  {line}" for line in EXAMPLES.get(path, ())]
    return "\n".join(["\b", "Examples:", *lines]) if lines else None
