"""A server that one case after the other uses: joins come and go, rows stay, and all answers are those of the model."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest
from pequod_server import PequodServer, ServerConfig

from pequod.client import AsyncClient
from pequod.engine import JoinSpec
from pequod.engine.testing import NaiveModel
from pequod.errors import PequodError
from tests.engine.draw import BASE_TABLES, draw_join, draw_range, draw_timeline
from tests.engine.earlier import draw_cutting_join, draw_rows
from tests.engine.stems import stems_of

#: Of each server; what the first one makes of a table stays.
CASES: Final = 12
#: More joins are dropped before the next case: the model evaluates all of them for each read.
JOINS_MAX: Final = 3


class Case:
    """What clients do at the server, and what is there by the model."""

    def __init__(self, client: AsyncClient, random: Random) -> None:
        self._client = client
        self._random = random
        self._model = NaiveModel()
        #: The installed joins by their names.
        self._installed: dict[str, JoinSpec] = {}

    async def run(self, number: int) -> None:
        """Have joins come over what there is, and write and read; then most of the joins go."""
        random = self._random
        if random.random() < 0.2:
            await self._remove_range(random.choice(BASE_TABLES))
        if random.random() < 0.5:
            await self._add(draw_cutting_join(random, random.choice(BASE_TABLES), number))
        await self._add(random.choice([draw_timeline, draw_join])(random))
        specs = [*self._installed.values()]
        for step in draw_rows(random, specs, 16):
            (rows,) = step.arguments
            assert isinstance(rows, tuple)
            await self._client.multi_put(rows)
            for key, value in rows:
                self._model.put(key, value)
        await self._look_over()
        for _ in range(10):
            await self._change()
            await self._compare(*draw_range(random, specs))
        await self._look_over()
        while self._installed and (len(self._installed) > JOINS_MAX or random.random() < 0.7):
            name = random.choice([*self._installed])
            await self._client.drop_join(name)
            self._model.drop(self._installed.pop(name))

    async def _add(self, spec: JoinSpec) -> None:
        try:
            (join,) = await self._client.add_join(str(spec))
        except PequodError:
            return
        self._installed[join.name] = spec
        self._model.add(spec)

    async def _remove_range(self, table: bytes) -> None:
        await self._client.remove_range(prefix=table + b"|")
        self._model.base = {key: value for key, value in self._model.base.items() if not key.startswith(table + b"|")}

    async def _change(self) -> None:
        keys = sorted(self._model.base)
        if keys and self._random.random() < 0.4:
            key = self._random.choice(keys)
            assert await self._client.remove(key)
            self._model.remove(key)
            return
        for step in draw_rows(self._random, [*self._installed.values()], 1):
            (rows,) = step.arguments
            assert isinstance(rows, tuple)
            ((key, value),) = rows
            await self._client.put(key, value)
            self._model.put(key, value)

    async def _look_over(self) -> None:
        for first, last in stems_of(self._model):
            await self._compare(first, last)

    async def _compare(self, first: bytes, last: bytes | None) -> None:
        expected = self._model.scan(first, last)
        assert await self._client.scan(first, last) == expected
        assert await self._client.count(first, last) == len(expected)
        assert await self._client.scan(first, last, limit=2, reverse=True) == expected[::-1][:2]


@pytest.mark.parametrize("seed", range(4))
async def test_what_joins_and_rows_were_there_before_changes_no_answer(seed: int) -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            case = Case(client, Random(seed))
            for number in range(CASES):
                await case.run(number)
                server.engine._check()
    finally:
        await server.stop()
