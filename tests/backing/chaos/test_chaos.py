"""One run of chaos for each store; `make chaos` does many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backing.chaos.run import Run
from tests.backing.chaos.sites import site
from tests.backing.conftest import Postgres


@pytest.mark.parametrize("store", ["sqlite", "slot", "notify", "failover"])
async def test_a_tormented_server_serves_what_the_database_has(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    postgres: Postgres | None = None if store == "sqlite" else request.getfixturevalue("postgres")
    async with site(store, tmp_path, postgres) as place:
        report = await Run(place, tmp_path, 3).carry_out()
    if postgres is not None and not postgres.is_running:
        # Its standby had taken over.
        postgres.start()
    assert report.wrongs == []
    assert report.reads > 0
