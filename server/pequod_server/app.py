"""The server put together: engine, service, listening sockets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from grpc import aio

from pequod.engine import UNLIMITED, Engine, JoinError
from pequod.errors import ClusterMapError, PequodError
from pequod_server.access.exposed import warn_of_exposed
from pequod_server.access.guard import make_guard
from pequod_server.access.tls import add_port
from pequod_server.backing import BackingStore
from pequod_server.calls.hot import ServedHotCalls
from pequod_server.calls.service import PequodService, add_service
from pequod_server.calls.warming import warm
from pequod_server.cluster.joins import ClusterJoins, specs_of
from pequod_server.cluster.member import Member
from pequod_server.cluster.membership import make_member
from pequod_server.config import ServerConfig, without_passwords
from pequod_server.data.errors import FolderError
from pequod_server.database.databases import HomeGroup
from pequod_server.database.loader import Loader
from pequod_server.homes.home.making import make_peer_service
from pequod_server.homes.home.service import PeerService, add_peer_service
from pequod_server.joins import install_joins
from pequod_server.memory.admission import Admission, messages_bytes_max
from pequod_server.memory.begun import connection_streams_max
from pequod_server.memory.keeper import MemoryKeeper, limit_bytes, priorities
from pequod_server.ops.instruments import Instruments
from pequod_server.passing.passing import make_passing
from pequod_server.snapshots.locations import place_of
from pequod_server.snapshots.saving import Snapshots
from pequod_server.snapshots.schedule import SnapshotSchedule
from pequod_server.stores import backed_tables, make_databases, make_disk, make_store, searching
from pequod_server.transport.choice import choose
from pequod_server.transport.server import WireServer
from pequod_server.wire.connections import Connections
from pequod_server.wire.endings import Endings
from pequod_server.wire.requests import RequestReader
from pequod_server.wire.serving import living_of, make_server
from pequod_server.wire.settling import Settling
from pequod_server.wire.standard import StandardServices
from pequod_server.wire.under_way import CallsUnderWay
from pequod_server.worker import Worker

if TYPE_CHECKING:
    from pequod_server.data.disk import Disk
    from pequod_server.data.loading import FolderLoading
    from pequod_server.gateway.gateway import Gateway

log = logging.getLogger("pequod.server")

#: How long the last bytes may take at the end, and the streams of health, which only the server ends.
_CLOSE_S: Final = 0.2


class PequodServer:
    """A server in the running event loop.

    Args:
        store: The database behind it, instead of that of the settings.
        groups: The databases behind it, instead, each with the ranges of keys that it owns.
        worker: Which worker it is, if it is one of several.

    Example:
        server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
        port = await server.start()
        await server.stop()
    """

    def __init__(
        self,
        config: ServerConfig,
        engine: Engine | None = None,
        *,
        store: BackingStore | None = None,
        groups: Sequence[HomeGroup] = (),
        worker: Worker | None = None,
    ) -> None:
        self._config, self._worker, told = config, worker, worker or Worker("", "")
        if not groups and (store := store or make_store(config)) is not None:
            groups = [HomeGroup("", store)]
        self.engine = engine or Engine(
            key_bytes_max=config.key_bytes_max,
            value_bytes_max=config.value_bytes_max,
            backed=[name for group in groups if group.ranges is None for name in backed_tables(group.store)],
            can_search=searching(groups),
            at_once=False,
            priorities=priorities(config.memory_priorities),
        )
        # An engine that was made elsewhere keeps the limit that it came with.
        held_bytes = limit_bytes(config.memory_limit) if engine is None else UNLIMITED
        self._keeper = MemoryKeeper(self.engine, held_bytes, messages_bytes=messages_bytes_max(config))
        #: Keeps the engine's base data; None: they die with the server.
        self.disk = make_disk(config, self.engine)
        self._loading: FolderLoading | None = None
        #: The databases behind the engine, none, one or several.
        self.databases = make_databases(config, self.engine, groups)
        self._admission = Admission(config)
        self._calls = CallsUnderWay(config, self._admission.places.make_way, self._admission.pressure)
        #: This server in its cluster, if it belongs to one.
        self.member = make_member(config, self.engine, self.databases, groups, worker)
        self._passing = make_passing(config, worker, self.member)
        self.guard = make_guard(config, self.engine, told.token)
        self.instruments = Instruments(
            config, self.engine, lambda: self.is_ready, self.databases, self._loads, told.figures
        )
        #: Whether calls are taken.
        self.is_ready = False
        streams_max = connection_streams_max(config)
        connections = Connections(config.connections_max, streams_max, lambda: living_of(self._server))
        #: The transport of the calls.
        self.transport = choose(config.transport)
        self._server = make_server(config, self._interceptors(connections), self.transport, is_shared=bool(worker))
        self.snapshots = Snapshots(place_of(config), self.engine, self.databases, self.disk)
        self._schedule = SnapshotSchedule(self.snapshots, config.snapshot_every_s)
        self.service = self._make_service(told)
        add_service(self.service, self._server)
        self._serve_hot(connections)
        #: The service for computes.
        self.peers = self._peers(groups)
        add_peer_service(self.peers, self._server)
        self.service.tell_following(self.peers.following)
        self.service.tell_calls(self.instruments.tallies, self.instruments.slow, self.instruments.heat)
        self.peers.on_load = self.instruments.heat.note
        self._add_collectors()
        self._gateway = self._make_gateway()
        self._standard = StandardServices(self._server, channelz=config.channelz)
        self._waits_for = "the joins"

    def _make_service(self, worker: Worker) -> PequodService:
        service = PequodService(
            self.engine,
            self._config,
            self.instruments.executed,
            self.snapshots,
            self.databases,
            admission=self._admission,
            member=self.member,
            batch_traces=self.instruments.batch_traces,
            own=self.disk,
            shown=worker.shown,
            passing=self._passing,
        )
        if self.disk is not None:
            service.keep_in(self.disk)
        return service

    def _interceptors(self, connections: Connections) -> list[aio.ServerInterceptor]:
        before = (RequestReader(self._admission), self.instruments.interceptor, Endings(), self._calls, connections)
        return [*before, *self._last_interceptors()]

    def _last_interceptors(self) -> list[aio.ServerInterceptor]:
        """Return those that stand before the handlers of each door."""
        guard = () if self.guard is None else (self.guard,)
        passing = () if self._passing is None else (self._passing,)
        return [*guard, *(() if self.disk is None else (Settling(self.disk),)), *passing]

    def _make_gateway(self) -> Gateway | None:
        """Return what serves HTTP, behind the interceptors that know no wire."""
        if not self._config.http:
            return None
        from pequod_server.gateway.gateway import make_gateway  # noqa: PLC0415 - only some servers have one

        interceptors = (self.instruments.interceptor, Endings(), self._calls, *self._last_interceptors())
        return make_gateway(self._config, self.service, interceptors, self._admission)

    def _serve_hot(self, connections: Connections) -> None:
        """Have calls answered without a handler where nothing has to see each of them."""
        if not isinstance(self._server, WireServer) or self.instruments.asks_for_each_call:
            return
        self._server.hot = self._server.counts.hot = hot = ServedHotCalls(
            self.service.served,
            self._admission,
            self._calls,
            connections,
            self.service.batches,
            self.instruments,
            guard=self.guard,
            rules=None if self.member is None else self.member.rules,
            disk=self.disk,
            passing=self._passing,
        )
        self.instruments.count_hot(hot.native)

    def _add_collectors(self) -> None:
        if self._config.metrics:
            from pequod_server.ops import collectors  # noqa: PLC0415 - only some servers have metrics

            self.instruments.add(lambda: collectors.SnapshotCollector(self.snapshots, self._schedule))
            self.instruments.add(lambda: collectors.TransportCollector(self._server))
            self.instruments.add(lambda: collectors.ComputeCollector(self.peers))
            if (guard := self.guard) is not None:
                self.instruments.add(lambda: collectors.QuotaCollector(guard.present_meters))
        self.instruments.count_levels(self.service.levels.counters)
        self.instruments.count_writes(*self.service.served.executor.write_figures)
        if self.member is not None:
            self.instruments.follow(self.member)

    def _peers(self, groups: Sequence[HomeGroup]) -> PeerService:
        # A server of several databases is a home of none of them.
        tables = backed_tables(groups[0].store) if len(groups) == 1 else []
        rules = None if self.member is None else self.member.rules
        service, own, ids = self.service, self.disk, self.service.served.executor.ids
        return make_peer_service(
            self._config, self.engine, self.databases, tables, service.server_id, self._admission, rules, own, ids
        )

    async def start(self, *, joins_from: str = "joins") -> int:
        """Install the joins of the configuration, listen, and return the port.

        Args:
            joins_from: Where the text of ``joins`` stands, for messages.

        Raises:
            ConfigError: A join cannot be installed.
            OSError: The address cannot be listened on, or that of the metrics.
            SchemaError: The database does not have what the mapping needs.
            BackingUnavailableError: The database does not answer.
            SettingError: It would be reached in plain text, or the files for TLS are not right.
            SnapshotError: The snapshot that it starts from is damaged or does not fit.
            FolderError: The data on disk are damaged, do not fit, or another server has them.
            ClusterMapError: The cluster has no map, or does not take this server.
        """
        install_joins(self.engine, self._config, joins_from=joins_from)
        try:
            await self.instruments.start()
            if self.guard is not None:
                self._waits_for = "the keys of those who issue tokens"
                await self.guard.access.start()
            if self.disk is not None:
                await self._load(self.disk)
            self._waits_for = f"the snapshot {self._config.snapshot_file or self._config.snapshot_folder}"
            since = await self.snapshots.restore_at_start()
            await self.databases.start(since)
            if self.member is not None:
                self._waits_for = f"the map of the cluster and its homes, {self.member.place}"
                await self.member.start()
                await self._share_joins(self.member)
                if self._passing is not None:
                    self._passing.start(self.service.levels, self.instruments.heat)
            self._waits_for = "the listening socket"
            await self._standard.starting()
            port = add_port(self._server, self._config, self._worker)
            warn_of_exposed(self._config)
        except (OSError, PequodError):
            await self.close()
            raise
        try:
            if self._gateway is not None:
                await self._gateway.start()
        except OSError:
            await self.close()
            raise
        self._keeper.start(self.service.relieve)
        self._admission.pressure.start()
        self._schedule.start()
        await self._server.start()
        if self._passing is not None:
            await self._passing.open_door()
        if self.member is not None:
            self._waits_for = "what is hot at other computes"
            if self._worker is None:
                await warm(self.service.served, self.member)
            self._waits_for = f"the cluster, {self.member.place}"
            try:
                await self.member.show(port)
            except ClusterMapError:
                await self.close()
                raise
        await self._standard.ready()
        self.is_ready = True
        return port

    async def _load(self, disk: Disk) -> None:
        """Take in what is on disk."""
        from pequod_server.data.loading import FolderLoading  # noqa: PLC0415 - needs an extra

        self._waits_for = f"the data in {self._config.data}"
        known = None if self._worker is None else self._worker.joins
        self._loading = loading = FolderLoading(self.engine, disk, keeps_joins=self.member is None, known=known)
        if self._config.metrics:
            from pequod_server.ops.collectors import FolderCollector  # noqa: PLC0415 - needs an extra

            self.instruments.add(lambda: FolderCollector(self.engine, disk, loading))
        self.databases.own_disk = loading.ranges
        await loading.run()

    async def _share_joins(self, member: Member) -> None:
        """Give the other workers the joins that clients have added, and keep those that they add from now on.

        Raises:
            FolderError: They do not go with those of the settings; or the map of the cluster lacks some.
        """
        disk, loading = self.disk, self._loading
        if disk is None or loading is None:
            return
        if self._worker is None:
            loading.leave_joins(specs_of(member.map))
            return
        if loading.others:
            try:
                await ClusterJoins(self.engine, member).add(loading.others)
            except JoinError as error:
                raise FolderError(disk.path, f"its joins do not go with the settings: {error}") from error
        go_on = member.on_taken_in

        def note() -> None:
            go_on()
            disk.note_joins()
            disk.settled(lambda _: None)

        member.on_taken_in = note

    def _loads(self) -> str:
        """Return how far the data on disk are loaded; empty if they are not being loaded."""
        return "" if self._loading is None else self._loading.progress

    @property
    def waits_for(self) -> str:
        """The step that the start waits for, in words; the last step once it is done."""
        step = self.databases.start_step
        if not step:
            return self._loads() or self._waits_for
        errors = [error for one in self.databases.all if (error := one.store.status.error) and error not in step]
        reason = f"; {'; '.join(errors)}" if errors else ""
        return f"the database {without_passwords(self._config.backing)}: {step}{reason}"

    @property
    def http_url(self) -> str:
        """The URL of the gateway for HTTP; empty: there is none."""
        return "" if self._gateway is None else self._gateway.url

    @property
    def loader(self) -> Loader | None:
        """The loader of the first database behind the engine; None without a database."""
        return next(iter(self.databases.all), None)

    def reload(self) -> None:
        """Read the access file again, and the file of the cluster, if there are such."""
        if self.member is not None:
            self.member.reload()
        if self.guard is not None:
            self.guard.access.reload()

    async def stop(self) -> None:
        """Say not ready, take no more calls, let those under way finish within the drain time, and close.

        Raises:
            SnapshotError: The settings name a file, and the base data could not be saved in it. All is closed.
        """
        self.is_ready = False
        await self._standard.stopping()
        if self.member is not None:
            await self.member.drain()
        self._calls.refuse()
        self.service.end_streams()
        if self._gateway is not None:
            self._gateway.end_streams()
        self.peers.end()
        await self._calls.drain(self._config.drain_s)
        await self._server.stop(_CLOSE_S)
        try:
            await self._schedule.end()
            if self.snapshots.is_wanted:
                await self.databases.halt()
                await self.snapshots.save()
        finally:
            await self._end()

    async def close(self) -> None:
        """Close at once; calls under way are cut off."""
        await self._server.stop(None)
        await self._end()

    async def _end(self) -> None:
        await self._schedule.end()
        await self.snapshots.end()
        await self._keeper.stop()
        await self._admission.pressure.stop()
        if self._gateway is not None:
            await self._gateway.stop()
        await self.service.stop()
        if self._passing is not None:
            await self._passing.close()
        if self.member is not None:
            await self.member.stop()
        self.peers.stop()
        if self.guard is not None:
            await self.guard.access.close()
        await self.databases.stop()
        await self.instruments.stop()
        if self.disk is not None:
            await (self.disk.end() if self._loading is None else self._loading.end())
