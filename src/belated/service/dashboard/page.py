"""The page as one document, and the policy that lets a browser run nothing else."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

SCRIPTS = ("charts.js", "intervals.js", "page.js")


class Page(NamedTuple):
    """An HTML document and the value of its Content-Security-Policy header."""

    html: str
    policy: str


@cache
def dashboard_page() -> Page:
    """The dashboard: style and script stand inside, nothing is loaded but the data."""
    folder = files("belated.service.dashboard")
    style = (folder / "page.css").read_text("utf-8")
    script = "".join((folder / name).read_text("utf-8") for name in SCRIPTS)
    html = (folder / "page.html").read_text("utf-8")
    html = html.replace("/* page.css */", style).replace(f"/* {', '.join(SCRIPTS)} */", script)
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_digest(script)}",
            f"style-src {_digest(style)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )
    return Page(html, policy)


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
