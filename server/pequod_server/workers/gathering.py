"""The metrics and the health of all workers at one address, which the supervisor serves.

/metrics    those of every worker, with the label `worker`
/readyz     200 if every worker says 200; else what those say that do not
/healthz    200: the supervisor answers
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pequod_server.ops.web import alive, listen, runner_of
from pequod_server.workers.process import WorkerProcess

#: A worker that takes longer for its figures is left out of this scrape.
_ASK_S: Final = 5.0


class Gathering:
    """Serves what workers tell.

    Args:
        places: The unix socket of each worker's figures.
    """

    def __init__(self, workers: Sequence[WorkerProcess], places: Mapping[str, str]) -> None:
        self._workers = workers
        self._places = places
        self._sessions: dict[str, ClientSession] = {}
        self._stack = AsyncExitStack()

    async def start(self, address: str) -> str:
        """Listen at HOST:PORT, and return the URL; port 0 takes a free one.

        Raises:
            OSError: The address cannot be listened on.
        """
        runner = runner_of({"/metrics": self._metrics, "/readyz": self._readyz, "/healthz": alive})
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        url = await listen(runner, address)
        for name, path in self._places.items():
            session = ClientSession(connector=UnixConnector(path), timeout=ClientTimeout(total=_ASK_S))
            self._sessions[name] = await self._stack.enter_async_context(session)
        return url

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        await self._stack.aclose()

    async def _metrics(self, request: web.Request) -> web.Response:
        told = await self._ask("metrics")
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Gathered(self._workers, {name: text for name, (status, text) in told.items() if status}))
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    async def _readyz(self, _request: web.Request) -> web.Response:
        told = await self._ask("readyz")
        not_ready = [
            f"{name}: {text.strip()}\n" for name, (status, text) in told.items() if status != web.HTTPOk.status_code
        ]
        return web.Response(status=503, text="".join(not_ready)) if not_ready else web.Response(text="ready\n")

    async def _ask(self, path: str) -> dict[str, tuple[int, str]]:
        """Return what each worker answers, by id; 0 and a reason if it does not."""
        found = await asyncio.gather(*(self._ask_one(name, path) for name in self._sessions))
        return dict(zip(self._sessions, found, strict=True))

    async def _ask_one(self, name: str, path: str) -> tuple[int, str]:
        try:
            async with self._sessions[name].get(f"http://{name}/{path}") as reply:
                return reply.status, await reply.text()
        except (ClientError, OSError, TimeoutError):
            return 0, "it does not answer"


class _Gathered(Collector):
    """The families of all workers, each once."""

    def __init__(self, workers: Iterable[WorkerProcess], told: Mapping[str, str]) -> None:
        self._workers = workers
        self._told = told

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("pequod_worker_up", "Whether the worker serves.", labels=["worker"])
        starts = GaugeMetricFamily("pequod_worker_starts", "How often the worker was started.", labels=["worker"])
        for worker in self._workers:
            up.add_metric([worker.id], float(worker.is_ready))
            starts.add_metric([worker.id], worker.starts)
        yield from (up, starts)
        families: dict[str, Metric] = {}
        for name, text in self._told.items():
            for family in text_string_to_metric_families(text):
                whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    whole.samples.append(sample._replace(labels={"worker": name, **sample.labels}))
        yield from families.values()
