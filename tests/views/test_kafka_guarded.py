"""Views in a Kafka that asks for users, over TLS: by the right address they work, and of a wrong one a line tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
from pequod_views import DurableView, TargetAwayError, TargetRefusedError, open_target
from pequod_views.install import check
from pequod_views.reading import status
from pequod_views.verifying import Verifier

from pequod import AsyncClient
from pequod.cli.exits import ExitCode
from tests.server.certificates import Authority
from tests.views.kafka_broker import GUEST, PASSWORD, USER, Kafka, started_kafka
from tests.views.sites import KafkaSite, equal, installed, managing
from tests.views.test_views_cli import views

KARMA = DurableView.parse({"name": "karma", "keys": "karma|<who>", "value": {"column": "votes", "type": "integer"}})
FILE = """
database = "{database}"
[[view]]
name = "karma"
keys = "karma|<who>"
value = "votes"
"""


@dataclass(frozen=True)
class Guarded:
    """A broker, and the files that say who may be trusted to be it."""

    broker: Kafka
    ca: Path
    other_ca: Path

    def address(
        self, *, user: str = USER, password: str = PASSWORD, mechanism: str = "PLAIN", ca: Path | None = None
    ) -> str:
        """Return the address for a user."""
        settings = f"mechanism={mechanism}&ca={ca or self.ca}"
        return f"kafka://{user}:{quote(password, safe='')}@127.0.0.1:{self.broker.guarded_port}?{settings}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("certificates")
    authority, other = Authority(folder, "authority"), Authority(folder, "other")
    with started_kafka(authority.sign("broker")) as broker:
        yield Guarded(broker, authority.path, other.path)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_views_over_tls_for_a_user(guarded: Guarded, client: AsyncClient, mechanism: str) -> None:
    """Topics are read without either, on the broker's other port."""
    site = KafkaSite(guarded.broker)
    await site.clear()
    site.database = guarded.address(mechanism=mechanism)
    await client.multi_put({f"karma|{number:03}": str(number) for number in range(100)})
    await installed(site, client, KARMA)
    target = open_target(site.database)
    assert await check(target, [KARMA]) == []
    async with managing(site, client, [KARMA]):
        await equal(site, client, KARMA)
        await client.remove("karma|001")
        await client.put("karma|000", "7")
        await equal(site, client, KARMA)
        (verdict,) = await Verifier(target, client).verify(KARMA)
        assert (verdict.row_count, verdict.drift_count, verdict.trouble) == (99, 0, "")
    await target.close()


async def refused(database: str) -> str:
    """Return the one line of an error."""
    target = open_target(database)
    with pytest.raises((TargetRefusedError, TargetAwayError)) as found:
        await status(target)
    await target.close()
    text = str(found.value)
    assert "\n" not in text
    assert PASSWORD not in text
    assert isinstance(found.value, TargetRefusedError) == (" refuses: " in text)
    return text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_refused(guarded: Guarded, mechanism: str) -> None:
    port = guarded.broker.guarded_port
    assert await refused(guarded.address(password="secret", mechanism=mechanism)) == (
        f"kafka://127.0.0.1:{port}/pequod_views refuses: 127.0.0.1:{port} does not know this user with this password"
        f" by {mechanism}; mend the address"
    )


async def test_a_way_of_naming_users_that_the_broker_does_not_have_is_refused(guarded: Guarded) -> None:
    text = await refused(guarded.address(mechanism="SCRAM-SHA-256"))
    assert "does not know users by SCRAM-SHA-256; name another `mechanism` in the address" in text


async def test_a_certificate_that_others_have_signed_is_refused(guarded: Guarded) -> None:
    text = await refused(guarded.address(ca=guarded.other_ca))
    assert "is not to be trusted" in text
    assert "`ca` in the address has to name the file of those that have signed it" in text


async def test_an_address_without_what_the_broker_asks_for_is_told(guarded: Guarded) -> None:
    port = guarded.broker.guarded_port
    hint = "if it asks for TLS, add ?ca=FILE to the address, and if for a user, write USER:PASSWORD@ before the host"
    assert f"127.0.0.1:{port} hangs up; {hint}" in await refused(f"kafka://127.0.0.1:{port}")
    text = await refused(f"kafka://127.0.0.1:{port}?ca={guarded.ca}")
    assert f"127.0.0.1:{port} hangs up; if it asks for a user, write USER:PASSWORD@ before the host" in text
    open_port = guarded.broker.port
    assert "asks for no user" in await refused(f"kafka://ann:secret@127.0.0.1:{open_port}")


async def test_a_user_without_rights_is_refused(guarded: Guarded, client: AsyncClient) -> None:
    site = KafkaSite(guarded.broker)
    await site.clear()
    site.database = guarded.address(user=GUEST)
    with pytest.raises(TargetRefusedError, match=r"the user bob lacks a right .*; grant it, or mend the address"):
        await installed(site, client, KARMA)


def test_commands_end_with_the_line(guarded: Guarded, tmp_path: Path) -> None:
    file = tmp_path / "views.toml"
    for database, told in (
        (guarded.address(password="secret"), "does not know this user"),
        (guarded.address(ca=guarded.other_ca), "is not to be trusted"),
    ):
        file.write_text(FILE.format(database=database))
        for word in ("status", "check", "run"):
            outcome = views(word, file)
            (line,) = outcome.stderr.splitlines()
            assert (outcome.exit_code, told in line) == (ExitCode.REFUSED, True), (word, line)
