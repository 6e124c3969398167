"""Tokens, TLS and refusals from the command line, against servers in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import tomllib
from collections.abc import Iterator
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.forked import Outcome, run_command, started_server
from tests.server.certificates import Authority, Pair
from tests.server.roles import ROLES


def pequod(*arguments: str, **environment: str) -> Outcome:
    # Options before the command are kept in the context of the process: no other test is to have them.
    run = partial(CliRunner().invoke, app, arguments, env=environment, prog_name="pequod")
    result = copy_context().run(run)
    return Outcome(result.exit_code, result.stdout, result.stderr)


@dataclass(frozen=True)
class Secured:
    """A server with TLS and an access file."""

    target: str
    process_id: int
    authority: Path
    token: str
    access_file: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder, "authority")
    pair: Pair = authority.sign("server")
    made = pequod("token", "new", "frontend", "--role", "web")
    access_file = folder / "access.toml"
    access_file.write_text(ROLES + made.err)
    files = ("--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key), "--access-file", str(access_file))
    with started_server(*files) as (target, process_id):
        yield Secured(target, process_id, authority.path, made.out.strip(), access_file)


def test_a_new_token_is_printed_once_and_its_lines_are_toml() -> None:
    first, second = (pequod("token", "new", "frontend", "--role", "web") for _ in range(2))
    assert first.code == 0
    assert first.out != second.out
    token = first.out.strip()
    assert len(token) >= 43
    assert token not in first.err
    digest = sha256(token.encode()).hexdigest()
    assert tomllib.loads(first.err) == {"tokens": {"frontend": {"role": "web", "sha256": digest}}}
    for name, role in (("a.b", "web"), ("", "web"), ("a]\n[roles.x", "web"), ("a", 'w"eb')):
        refused = pequod("token", "new", name, "--role", role)
        assert (refused.code, refused.out) == (2, "")


def test_commands_with_a_token_over_tls(secured: Secured, tmp_path: Path) -> None:
    variables = {"PEQUOD_TARGET": secured.target, "PEQUOD_CA": str(secured.authority), "PEQUOD_TOKEN": secured.token}
    assert pequod("put", "p|bob|0001", "Hi", **variables).code == 0
    assert pequod("get", "p|bob|0001", **variables).out == "Hi\n"
    token_file = tmp_path / "token"
    token_file.write_text(secured.token + "\n")
    options = ("--ca", str(secured.authority), "--token-file", str(token_file))
    assert pequod(*options, "count", "--prefix", "p|", "-t", secured.target).out == "1\n"
    refused = pequod("get", "secret", **variables)
    assert refused.code == 3
    assert refused.err == (
        "pequod: role 'web' lacks the right 'read' on the key 'secret'; an operator can grant it in the access file\n"
    )
    assert pequod("scan", "p|", **variables).code == 3
    unknown = pequod("get", "p|bob|0001", **variables | {"PEQUOD_TOKEN": "guess"})
    assert (unknown.code, unknown.out) == (3, "")
    assert "does not know this token" in unknown.err
    missing = pequod("get", "p|bob|0001", **variables | {"PEQUOD_TOKEN": ""})
    assert (missing.code, "PEQUOD_TOKEN" in missing.err) == (3, True)
    plain = pequod("get", "p|bob|0001", PEQUOD_TARGET=secured.target, PEQUOD_TOKEN=secured.token)
    assert (plain.code, "wants TLS" in plain.err) == (4, True)
    assert pequod("--token-file", "/none", "get", "a").code == 2
    assert pequod("--certificate", "/none", "get", "a").code == 2


def test_the_benchmark_reaches_a_server_that_is_secured(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    pair = authority.sign("server")
    made = pequod("token", "new", "bench", "--role", "root")
    (tmp_path / "access.toml").write_text(ROLES + made.err)
    files = ("--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key))
    with started_server(*files, "--access-file", str(tmp_path / "access.toml")) as (target, _):
        command = ("--ca", str(authority.path), "bench", "twip", "--users", "50", "--ticks", "200", "--target", target)
        assert "wants a token" in pequod(*command).err
        done = pequod(*command, "--json", PEQUOD_TOKEN=made.out.strip())
    assert (done.code, json.loads(done.out)["correct"]) == (0, True), done.err


def test_sighup_reads_the_access_file(secured: Secured) -> None:
    variables = {"PEQUOD_TARGET": secured.target, "PEQUOD_CA": str(secured.authority), "PEQUOD_TOKEN": secured.token}
    assert pequod("join", "list", **variables).code == 0
    before = secured.access_file.read_text()
    stamps = secured.access_file.stat()
    # As long as before, at the same time: nothing but the signal tells.
    secured.access_file.write_text(before.replace('"web"\nsha', '"ann"\nsha'))
    os.utime(secured.access_file, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
    assert secured.access_file.stat().st_size == stamps.st_size
    assert pequod("count", "--prefix", "p|", **variables).code == 0
    os.kill(secured.process_id, signal.SIGHUP)
    while pequod("count", "--prefix", "p|", **variables).code == 0:
        pass
    assert "'ann'" in pequod("count", "--prefix", "p|", **variables).err
    assert pequod("count", "--prefix", "t|ann|", **variables).code == 0, "and the server lives"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--listen", "0.0.0.0:0"), "give --tls-certificate and --tls-key, or --insecure"),
        (("--tls-certificate", "/none.pem", "--tls-key", "/none.key"), "tls_certificate: "),
        (("--access-file", "/none.toml"), "access_file: "),
    ],
)
def test_a_server_that_would_not_be_safe_does_not_start(arguments: tuple[str, ...], said: str) -> None:
    refused = run_command("serve", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert "Traceback" not in refused.err


def test_checking_a_configuration_checks_its_security(tmp_path: Path) -> None:
    file = tmp_path / "pequod.toml"
    for text, said in [
        ('listen = "0.0.0.0:7744"', "listen: 0.0.0.0:7744 can be reached"),
        ('tls_key = "none.key"', "tls_certificate: it goes with tls_key"),
        ('access_file = "none.toml"', "access_file: "),
        ('http = "0.0.0.0:7"', "http: 0.0.0.0:7 can be reached from other machines, and everybody there could do"),
        ('fsync = "always"', "fsync: no disk has what is written"),
        ('cluster_group = "a"', "cluster_group: it needs a cluster"),
        ('peer_exports = "votes_at"', "peer_exports: only a home beside one database"),
    ]:
        file.write_text(text)
        checked = pequod("config", "check", str(file))
        assert (checked.code, checked.out) == (2, "")
        assert said in checked.err
    (tmp_path / "access.toml").write_text(ROLES)
    file.write_text('listen = "0.0.0.0:7744"\ninsecure = true\naccess_file = "access.toml"')
    variables = {"PEQUOD_CERTIFICATE": "a", "PEQUOD_KEY": "b", "PEQUOD_CA": "c", "PEQUOD_INSECURE_TOKEN": "1"}
    checked = pequod("config", "check", str(file), **variables)
    assert (checked.code, checked.err) == (0, "")
