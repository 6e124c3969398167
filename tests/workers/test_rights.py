"""TLS, tokens and the access file hold at every worker, and for calls that one passes on to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from pequod import Client
from pequod.errors import PermissionDeniedError, UnauthenticatedError
from tests.server.certificates import Authority
from tests.server.roles import access_text
from tests.workers.conftest import Workers, timeline

#: Clients have a connection each: all of them meet the same one of two workers once in a million runs.
CLIENTS = 20


def test_callers_may_do_the_same_at_each_worker(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    pair = authority.sign("server", "localhost")
    access = tmp_path / "access.toml"
    access.write_text(access_text("web", "root"))
    flags = ("--access-file", str(access), "--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key))
    with Workers(2, *flags) as server:

        def client(token: str | None) -> Client:
            return Client(server.target, ca=authority.path, token=token)

        with client("root") as root:
            root.put("s|ann|bob", "1")
            root.put("secret", "1")
            batch = root.batch()
            batch.put("note|1", "of the home alone")
            batch.get("note|1")
            assert batch.send() == [None, b"of the home alone"]
        for number in range(CLIENTS):
            with client("web") as web:
                web.put(f"p|bob|{number:010}", "Hi")
                assert len(timeline(web)) == number + 1
                for key in ("secret", "note|1"):
                    with pytest.raises(PermissionDeniedError):
                        web.get(key)
                with pytest.raises(PermissionDeniedError):
                    web.put("note|1", "mine")
        with client(None) as nobody, pytest.raises(UnauthenticatedError):
            nobody.get("p|bob|1")
