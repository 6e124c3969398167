"""What callers learn of homes that are away: the home group and what to do, and no addresses."""

import pytest
from pequod_server.backing import BackingUnavailableError
from pequod_server.wire.publishing import DATABASE, HOME, UNKNOWN_FATE, of_one, public

from pequod.client import AsyncClient
from tests.peer.homes import computing, fake, running

AWAY = "its homes do not answer; ask again later, or see `pequod cluster status`; the server's log has more under "


async def test_a_home_that_is_away_is_told_as_a_home_group_and_no_database(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as home, computing([home.address]) as compute:
        await compute.client.put("p|bob|0001", "Hi")
        await home.server.stop()
        async with AsyncClient(compute.address, retries=0) as client:
            for call in (client.get("p|liz|0001"), client.put("p|bob|0002", "Ho")):
                with pytest.raises(BackingUnavailableError) as failed:
                    await call
                error = failed.value
                assert (error.store, error.reason[: len(AWAY)]) == ("the home group", AWAY)
                assert str(home.port) not in str(error)
    assert "a home failed a call" in [record.getMessage() for record in caplog.records]
    assert "the database failed a call" not in caplog.text


async def test_a_database_behind_a_home_that_is_away_is_told_as_the_database_of_the_group() -> None:
    store = fake()
    async with running(store) as home, computing([home.address]) as compute:
        store.fail("load", times=100)
        async with AsyncClient(compute.address, retries=0) as client:
            with pytest.raises(BackingUnavailableError, match="the database of the home group is not available"):
                await client.get("p|bob|0001")
        store._failures.clear()


@pytest.mark.parametrize("store", ["pequod://10.0.0.1:7744", "the home 10.0.0.1:7744", "the feed of the database"])
def test_what_a_home_group_says_hides_its_addresses_and_tells_the_fate_of_a_write(store: str) -> None:
    shown = of_one("the home group b", BackingUnavailableError(store, f"it broke, and {UNKNOWN_FATE}"))
    assert shown.store == "the home group b"
    assert UNKNOWN_FATE in shown.reason
    assert "10.0.0.1" not in str(shown)
    assert public(shown) is shown


def test_what_a_home_says_of_itself_and_of_its_database_keeps_its_reason() -> None:
    paused = of_one("the home group b", BackingUnavailableError(HOME, "this home was paused"))
    assert str(paused) == "the home group b is not available: this home was paused"
    for told in (DATABASE, f"{DATABASE} b"):
        shown = of_one("the home group b", BackingUnavailableError(told, "it does not answer"))
        assert str(shown) == "the database of the home group b is not available: it does not answer"
        assert public(shown) is shown
