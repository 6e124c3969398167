"""Three servers beside one database, and clients of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pequod import AsyncClient
from tests.cluster_client.site import Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(tmp_path, 3) as site:
        yield site


@pytest.fixture
async def client(site: Site) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(site.target) as client:
        yield client
