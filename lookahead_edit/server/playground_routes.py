"""The playground at `/`: one page without a build step, put together from the files of `playground/` when it starts.

It uses the public endpoints only. Its content security policy names the hash of its one style sheet and of its one
script, and lets it connect to this server alone, so nothing else can run in it or be asked by it.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from lookahead_edit.server.documentation import error_responses

FOLDER = Path(__file__).parent / "playground"
SCRIPTS = ("elements.js", "requests.js", "charts.js", "diff.js", "answer.js", "dashboard.js", "page.js")


def playground_page() -> tuple[str, dict[str, str]]:
    """The page and the headers that belong to it."""
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    script = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
    page = (FOLDER / "page.html").read_text(encoding="utf-8")
    policy = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return page.replace("@style@", style).replace("@script@", script), {
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }


def playground_router() -> APIRouter:
    """The route; it needs no key, as the page holds nothing but itself."""
    router = APIRouter()
    page, headers = playground_page()

    @router.get("/", summary="The playground", response_class=HTMLResponse, responses=error_responses())
    async def show_playground() -> HTMLResponse:
        return HTMLResponse(page, headers=headers)

    return router


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
