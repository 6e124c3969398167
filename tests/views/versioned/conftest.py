"""Leases of processes over a store, given back at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias

import pytest
from pequod_views.versioned import RecordStore, ShareLeases

#: A process that asks for a share waits for a quarter of it.
LEASE_S: Final = 2.0
NewLeases: TypeAlias = Callable[[RecordStore], ShareLeases]


@pytest.fixture
async def new_leases() -> AsyncIterator[NewLeases]:
    """Yield what makes the leases of another process."""
    opened: list[ShareLeases] = []

    def open_leases(store: RecordStore) -> ShareLeases:
        opened.append(ShareLeases(store, lease_s=LEASE_S, share_count=4))
        return opened[-1]

    yield open_leases
    for leases in opened:
        await leases.close()


@pytest.fixture
async def leases(store: RecordStore, new_leases: NewLeases) -> ShareLeases:
    """Return the leases of the one process over the store of a test."""
    return new_leases(store)
