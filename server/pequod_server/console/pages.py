"""Serves the files of the console: plain modules, styles and one page, as they are in `static`.

They are the same for everybody and hold no data, so they need no token; the page asks `/v1` for all that it shows, with
the token that its reader gives it.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import hdrs, web

_FOLDER: Final = Path(__file__).parent / "static"
_HOME: Final = "/console/"
_PAGE: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
#: The page runs its own modules and styles alone, talks to its own server alone, and stands in no frame.
_HEADERS: Final = {
    hdrs.CACHE_CONTROL: "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _File(NamedTuple):
    body: bytes
    kind: str
    etag: str


class Console:
    """The files, read once."""

    def __init__(self) -> None:
        self._files = {path.name: _read(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Serve the console at `/console/`, to which `/` leads."""
        router.add_get("/", _lead)
        router.add_get("/console", _lead)
        router.add_get(_HOME + "{name:[^/]*}", self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        file = self._files.get(request.match_info["name"] or _PAGE)
        if file is None:
            raise web.HTTPNotFound
        headers = _HEADERS | {hdrs.ETAG: file.etag}
        if request.headers.get(hdrs.IF_NONE_MATCH) == file.etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.body, content_type=file.kind, charset="utf-8", headers=headers)


async def _lead(_request: web.Request) -> web.Response:
    return web.Response(status=302, headers={hdrs.LOCATION: _HOME})


def _read(path: Path) -> _File:
    body = path.read_bytes()
    return _File(body, _TYPES[path.suffix], f'"{sha256(body).hexdigest()[:32]}"')
