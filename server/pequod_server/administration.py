"""The calls about joins and state: what is installed, what is held, and what is forgotten or kept on disk."""

from __future__ import annotations

import time
from collections.abc import Callable

from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodServicer

from pequod.engine import Engine, JoinError
from pequod.errors import BadRequestError, SnapshotError
from pequod_server import encode
from pequod_server.bounds import last_of
from pequod_server.handlers import Context, answer, refuse
from pequod_server.joins import JoinLimits
from pequod_server.loader import Loader
from pequod_server.snapshots import Snapshots
from pequod_server.statistics import collected


class AdministrationHandlers(PequodServicer):
    """The calls about joins and state, a part of the service."""

    _engine: Engine
    _join_limits: JoinLimits
    _loader: Loader | None
    _snapshots: Snapshots
    _header: Callable[[], pb.Header]

    async def AddJoin(self, request: pb.AddJoinRequest, context: Context) -> pb.AddJoinReply:
        """Install the joins of a text, all or none."""

        def add() -> list[pb.Join]:
            self._join_limits.refuse_text(request.text)
            specs = parse(request.text)
            self._join_limits.refuse_joins(self._engine, specs)
            try:
                return [encode.join(join) for join in self._engine.add_joins(specs)]
            except JoinError as error:
                raise error.with_text(request.text) from None

        joins = await answer(context, add)
        return pb.AddJoinReply(header=self._header(), joins=joins)

    async def DropJoin(self, request: pb.DropJoinRequest, context: Context) -> pb.DropJoinReply:
        """Take out a join."""
        await answer(context, lambda: self._engine.drop_join(request.name))
        return pb.DropJoinReply(header=self._header())

    async def ListJoins(self, _request: pb.ListJoinsRequest, _context: Context) -> pb.ListJoinsReply:
        """List the installed joins."""
        return pb.ListJoinsReply(header=self._header(), joins=map(encode.join, self._engine.joins()))

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainReply:
        """Tell how a join is evaluated, or what a read of a range would find."""
        subject = request.WhichOneof("subject")
        if subject is None:
            await refuse(context, BadRequestError("name a join or a range to explain"))
        if subject == "join":
            plan = await answer(context, lambda: self._engine.explain_join(request.join))
            return pb.ExplainReply(header=self._header(), join=encode.join_explanation(plan))
        bounds = request.range.first, last_of(request.range)
        if self._loader is not None:
            await self._loader.whole([bounds])
        found = self._engine.explain_range(*bounds, now=time.monotonic())
        return pb.ExplainReply(header=self._header(), range=encode.range_explanation(found))

    async def Invalidate(self, request: pb.InvalidateRequest, context: Context) -> pb.InvalidateReply:
        """Forget what is computed of a range or by a join."""
        subject = request.WhichOneof("subject")
        if subject is None:
            await refuse(context, BadRequestError("name a join or a range to invalidate"))
        if subject == "join":
            count = await answer(context, lambda: self._engine.invalidate_join(request.join))
        else:
            count = self._engine.invalidate(request.range.first, last_of(request.range))
        return pb.InvalidateReply(header=self._header(), contexts=count)

    async def Stats(self, _request: pb.StatsRequest, _context: Context) -> pb.StatsReply:
        """Tell what the server holds and did."""
        backing = None if self._loader is None else self._loader.statistics()
        return encode.statistics(await collected(self._engine), self._header(), backing)

    async def SaveSnapshot(self, _request: pb.SaveSnapshotRequest, context: Context) -> pb.SaveSnapshotReply:
        """Write the base data into the server's file."""
        try:
            saved = await self._snapshots.save()
        except SnapshotError as error:
            await refuse(context, error)
        return pb.SaveSnapshotReply(
            header=self._header(),
            path=str(saved.path),
            key_count=saved.key_count,
            range_count=saved.range_count,
            backed_key_count=saved.backed_key_count,
            file_bytes=saved.file_bytes,
        )

    async def RestoreSnapshot(self, _request: pb.RestoreSnapshotRequest, context: Context) -> pb.RestoreSnapshotReply:
        """Put the keys of the server's file."""
        try:
            restored = await self._snapshots.restore()
        except SnapshotError as error:
            await refuse(context, error)
        return pb.RestoreSnapshotReply(
            header=self._header(), path=str(restored.path), key_count=restored.key_count, saved_s=restored.saved_s
        )
