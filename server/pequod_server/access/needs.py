"""The rights that each call needs, by its request.

A call without a rule needs `admin` on every key, so that a new call is closed until it has a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb

from pequod.commands.columns import bounds_of, commands, needs
from pequod.commands.kinds import DECIDED, WRITES
from pequod.engine import Engine, JoinError, JoinSpec
from pequod.errors import PermissionDeniedError
from pequod_server.access.grants import Right, Role, keys_of
from pequod_server.joins import JoinLimits
from pequod_server.wire.bounds import last_of, range_of
from pequod_server.wire.handlers import PEER_PATH, SERVICE_PATH

#: Passes if a role may make a call with a request; raises PermissionDeniedError if not.
Rule = Callable[[Role, Any], None]
#: Calls that every known caller may make: their replies are public.
_KNOWN: Final = ("/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/")


#: Writes that go by the present value of their key.
_Decided = pb.WriteIfRequest | pb.AddRequest | pb.PeerWriteIfRequest | pb.PeerAddRequest

#: Calls with the text of joins.
_Text = pb.AddJoinRequest | pb.CheckJoinRequest | pb.ReplaceJoinRequest
#: Calls about a join that take it away.
_Named = pb.DropJoinRequest | pb.ReplaceJoinRequest | pb.EndReplacementRequest


class Needs:
    """The rules of all calls."""

    def __init__(self, engine: Engine, join_limits: JoinLimits) -> None:
        self._engine = engine
        self._join_limits = join_limits
        self._rules: dict[str, Rule] = {
            "Get": lambda role, request: role.need_key(Right.READ, request.key),
            "Put": lambda role, request: role.need_key(Right.WRITE, request.key),
            "Transaction": _need_transaction,
            "WriteIf": _need_decided,
            "Add": _need_decided,
            "Remove": lambda role, request: role.need_key(Right.WRITE, request.key),
            "MultiGet": lambda role, request: _need_keys(role, Right.READ, request.keys),
            "MultiPut": lambda role, request: _need_keys(role, Right.WRITE, request.keys),
            "Expire": lambda role, request: role.need_key(Right.WRITE, request.key),
            "Ttl": lambda role, request: role.need_key(Right.READ, request.key),
            "RemoveRange": lambda role, request: _need_range(role, Right.WRITE, *range_of(request)),
            "Scan": lambda role, request: role.need(Right.READ, *range_of(request)),
            "Watch": lambda role, request: role.need(Right.READ, request.first, last_of(request)),
            "WatchRanges": _need_watched,
            "Count": lambda role, request: role.need(Right.READ, *range_of(request)),
            "Splits": lambda role, request: role.need(Right.READ, *range_of(request)),
            # The commands are judged one by one (`RightsJudge`).
            "Execute": _need_nothing,
            # The map is for every client, and all its joins are for its operators.
            "FollowCluster": lambda role, request: _need_admin(role, request) if request.with_joins else None,
            # The replies have what the caller may see.
            "ListJoins": _need_nothing,
            "Stats": _need_nothing,
            "AddJoin": self._need_join_rights,
            "CheckJoin": self._need_join_rights,
            "DropJoin": self._need_drop,
            "ReplaceJoin": self._need_replace,
            "EndReplacement": self._need_drop,
            "ListReplacements": _need_nothing,
            "Explain": self._need_explain,
            "Invalidate": self._need_invalidate,
            "SlowCalls": _need_admin,
            "SaveSnapshot": _need_admin,
            "RestoreSnapshot": _need_restore,
            "BeginBackfill": self._need_begin,
            "ReadBackfill": self._need_source_rows,
            "LoadBackfill": self._need_pieces,
            "RenewBackfill": self._need_backfill,
            "EndBackfill": self._need_backfill,
            "ListBackfills": _need_nothing,
            PEER_PATH + "Load": _need_feed_ranges,
            # The handlers look at the ranges of each load, and of the hello.
            PEER_PATH + "Loads": _need_feed,
            PEER_PATH + "Feed": _need_feed,
            PEER_PATH + "Position": _need_feed,
            PEER_PATH + "Write": lambda role, request: _need_keys(role, Right.WRITE, request.keys),
            PEER_PATH + "Transaction": lambda role, request: _need_transaction(role, request.transaction),
            PEER_PATH + "WriteIf": _need_decided,
            PEER_PATH + "Add": _need_decided,
            # They are of all keys of the home: what they gave tells values, and who makes some up prevents writes.
            PEER_PATH + "Ids": lambda role, _: role.need(Right.FEED, b"", None),
            PEER_PATH + "TakeIds": lambda role, _: role.need(Right.WRITE, b"", None),
        }

    def rule_of(self, method: str) -> Rule:
        """Return the rule of a method."""
        known = _need_nothing if method.startswith(_KNOWN) else _need_admin
        return self._rules.get(method.removeprefix(SERVICE_PATH), known)

    def _spec(self, name: str) -> JoinSpec | None:
        """Return an installed join, None where there is none of this name: then the handler refuses the call."""
        return next((join.spec for join in self._engine.joins() if join.name == name), None)

    def _need_join_rights(self, role: Role, request: _Text) -> None:
        """Pass if the role may compute the outputs and read the sources of all joins of a text."""
        if not role.has(Right.JOIN):
            # Long texts take long to parse; only those who may install something can have that done, within limits.
            raise PermissionDeniedError(role.name, Right.JOIN, b"", None)
        self._join_limits.refuse_text(request.text)
        try:
            specs = parse(request.text)
        except JoinError:
            return  # the handler says what is wrong with the text
        for spec in specs:
            _need_join(role, spec)

    def _need_replace(self, role: Role, request: pb.ReplaceJoinRequest) -> None:
        """Pass if the role may drop the join, and add the one that takes its place."""
        self._need_drop(role, request)
        if not request.undo:
            self._need_join_rights(role, request)
        elif self._spec(request.name) is not None:
            _need_join(role, self._engine.replaced_spec(request.name))

    def _need_drop(self, role: Role, request: _Named) -> None:
        if (spec := self._spec(request.name)) is not None:
            role.need(Right.JOIN, *keys_of(spec.output))

    def _need_backfill(self, role: Role, request: Any) -> None:
        """Pass if the role may administer all that the join computes."""
        if (spec := self._spec(request.join)) is not None:
            role.need(Right.ADMIN, *keys_of(spec.output))

    def _need_begin(self, role: Role, request: pb.BeginBackfillRequest) -> None:
        """Pass if the role may also load, so that no driver computes for hours what is refused then."""
        self._need_backfill(role, request)
        if (spec := self._spec(request.join)) is not None:
            for source in spec.sources:
                role.need(Right.READ, *keys_of(source.pattern))
            role.need(Right.WRITE, *_within(keys_of(spec.output), (request.first, last_of(request))))

    def _need_source_rows(self, role: Role, request: pb.ReadBackfillRequest) -> None:
        # A source's table has more keys than the join reads, and a checksum reveals rows, too.
        self._need_backfill(role, request)
        role.need(Right.READ, request.first, request.last)

    def _need_pieces(self, role: Role, request: pb.LoadBackfillRequest) -> None:
        self._need_backfill(role, request)
        # The handler refuses lists of different lengths.
        for first, last in zip(request.firsts, request.lasts, strict=False):
            role.need(Right.WRITE, first, last)

    def _need_explain(self, role: Role, request: pb.ExplainRequest) -> None:
        if request.WhichOneof("subject") == "range":
            role.need(Right.READ, request.range.first, last_of(request.range), Right.ADMIN)
        elif (spec := self._spec(request.join)) is not None:
            role.need(Right.READ, *keys_of(spec.output), Right.ADMIN)

    def _need_invalidate(self, role: Role, request: pb.InvalidateRequest) -> None:
        if request.WhichOneof("subject") == "range":
            _need_range(role, Right.ADMIN, request.range.first, last_of(request.range))
        elif (spec := self._spec(request.join)) is not None:
            role.need(Right.ADMIN, *keys_of(spec.output))


def _need_nothing(_role: Role, _request: object) -> None:
    pass


def _need_join(role: Role, spec: JoinSpec) -> None:
    """Pass if the role may compute what a join does, and read its sources."""
    role.need(Right.JOIN, *keys_of(spec.output))
    for source in spec.sources:
        role.need(Right.READ, *keys_of(source.pattern))


def _need_decided(role: Role, request: _Decided) -> None:
    """Pass if the role may write the key, and read it: what the answer says of its value is what a read tells."""
    role.need_key(Right.WRITE, request.key)
    role.need_key(Right.READ, request.key)


def _need_transaction(role: Role, request: pb.TransactionRequest) -> None:
    """Pass if the role may read all that is compared and read, and write all that may be written, by either list.

    An add is both.
    """
    _need_keys(role, Right.READ, request.compare_keys)
    for columns in (request.then, request.otherwise):
        needed = needs(columns.kinds)
        if needed.unknown is not None or needed.argument_count != len(columns.arguments):
            return  # the handler says what is wrong with the request
        for _, kind, first, second in commands(columns.kinds, columns.arguments[:]):
            bounds = bounds_of(kind, first, second)
            if kind in WRITES:
                _need_range(role, Right.WRITE, *bounds)
            if kind not in WRITES or kind in DECIDED:
                _need_range(role, Right.READ, *bounds)


def _need_keys(role: Role, right: Right, keys: Iterable[bytes]) -> None:
    for key in keys:
        role.need_key(right, key)


def _need_watched(role: Role, request: pb.WatchRangesRequest) -> None:
    for one in request.ranges:
        role.need(Right.READ, one.first, last_of(one))


def _need_range(role: Role, right: Right, first: bytes, last: bytes | None) -> None:
    """Pass if the role has a right on a range, of an empty one on its first key: so callers learn what they may do."""
    if last is not None and last <= first:
        role.need_key(right, first)
    else:
        role.need(right, first, last)


def _need_feed(role: Role, _request: object) -> None:
    if not role.has(Right.FEED):
        raise PermissionDeniedError(role.name, Right.FEED, b"", None)


def _need_feed_ranges(role: Role, request: pb.PeerLoadRequest) -> None:
    _need_feed(role, request)
    # The handler refuses lists of different lengths.
    for first, last in zip(request.firsts, request.lasts, strict=False):
        role.need(Right.FEED, first, last or None)


def _need_admin(role: Role, _request: object) -> None:
    """Pass if the role may administer everything."""
    role.need(Right.ADMIN, b"", None)


def _need_restore(role: Role, _request: object) -> None:
    """Pass if the role may also write every key: those of the file replace what clients have written since."""
    role.need(Right.ADMIN, b"", None)
    role.need(Right.WRITE, b"", None)


def _within(outer: tuple[bytes, bytes | None], inner: tuple[bytes, bytes | None]) -> tuple[bytes, bytes | None]:
    """Return what two ranges have in common."""
    ends = [last for _, last in (outer, inner) if last is not None]
    return max(outer[0], inner[0]), min(ends, default=None)
