"""A server with an access file: its roles and tokens, and calls with one of the tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from grpc import aio
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig

ROLES = """
[roles.web]
read = ["t|", "p|"]
write = ["p|", "s|"]

[roles.author]
read = ["s|", "p|"]
join = ["t|", "o|mine|"]

[roles.ann]
read = ["t|ann|"]

[roles.watch]
admin = [""]

[roles.driver]
read = ["s|", "p|"]
write = ["t|ann|"]
admin = ["t|"]

[roles.root]
read = [""]
write = [""]
join = [""]
admin = [""]

[roles.nobody]
"""


def access_text(*names: str) -> str:
    tokens = (f'[tokens.{name}]\nrole = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n' for name in names)
    return ROLES + "".join(tokens)


@pytest.fixture
def access_file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(access_text("web", "author", "ann", "watch", "driver", "root", "nobody"))
    return path


@pytest.fixture
async def server(access_file: Path) -> AsyncIterator[PequodServer]:
    config = ServerConfig(
        listen="127.0.0.1:0", drain_s=0.5, access_file=access_file, chunk_bytes=10, reply_bytes_max=100
    )
    server = PequodServer(config)
    server.port = await server.start()  # type: ignore[attr-defined]
    for key in (b"p|bob|0001", b"p|bob|0002", b"s|ann|bob", b"secret"):
        server.engine.put(key, b"value of " + key)
    yield server
    await server.stop()
    server.engine._check()


def rewrite(path: Path, text: str | None) -> None:
    """Put another file in the place of ``path``, as editors do; None for no file."""
    if text is None:
        path.unlink()
    else:
        scratch = path.with_suffix(".new")
        scratch.write_text(text)
        scratch.replace(path)


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


class As:
    """The stub's calls with a token."""

    def __init__(self, stub: Any, token: str) -> None:
        self._stub = stub
        self._metadata = bearer(token)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: getattr(self._stub, name)(*arguments, metadata=self._metadata)


@pytest.fixture
async def stub(server: PequodServer) -> AsyncIterator[Any]:
    async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:  # type: ignore[attr-defined]
        yield PequodStub(channel)  # type: ignore[no-untyped-call]
