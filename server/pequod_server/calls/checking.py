"""The call that tells what AddJoin would do with a text: nothing changes for it.

    text -> parsed, held against the joins and keys of the server's engine -> problem
         -> an engine beside it: the same joins, the new ones, some rows of each source -> plan, matches, rows

So the rows are exactly those that the joins give, if the sources had no other rows; those of other joins of the same
table are not among them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from pequod_grammar import parse_some
from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine, JoinError, JoinInfo, JoinSpec, LimitExceededError, Rows
from pequod.language.containing import keys_of
from pequod.language.patterns import compile_matcher
from pequod_server.calls.served import ServedEngine
from pequod_server.cluster.joins import ClusterJoins
from pequod_server.joins import JoinLimits
from pequod_server.wire import encode
from pequod_server.wire.handlers import Context

#: Rows of one source that are looked at, and of all sources.
_SAMPLE_ROWS: Final = 500
_SAMPLED_ROWS_MAX: Final = 20_000
#: The memory for what joins compute from them.
_TRIAL_BYTES: Final = 16 << 20
#: Rows of a join that are shown, and their bytes.
_SHOWN_ROWS: Final = 20
_SHOWN_BYTES: Final = 1 << 16


class JoinChecks:
    """Answers CheckJoin.

    Args:
        cluster_joins: The joins of the cluster; None: joins are this server's own.
    """

    def __init__(self, served: ServedEngine, cluster_joins: ClusterJoins | None) -> None:
        self._served = served
        self._engine = served.engine
        self._cluster_joins = cluster_joins
        self._limits = JoinLimits(served.config)

    async def check(self, request: pb.CheckJoinRequest, _context: Context) -> pb.CheckJoinReply:
        """Tell what is wrong with a text, or what its joins would be."""
        self._limits.refuse_text(request.text)
        reply = pb.CheckJoinReply(header=self._served.header())
        try:
            specs = parse_some(request.text)
            self._limits.refuse_joins(self._engine, specs)
            elsewhere = [] if self._cluster_joins is None else self._cluster_joins.elsewhere()
            fresh = set(self._engine.fresh_joins(specs)).difference(elsewhere)
            trial, infos = self._trial(specs, elsewhere)
        except JoinError as error:
            reply.problem.CopyFrom(_problem(error))
            return reply
        trial.put_all(*self._sources(trial, specs))
        reply.joins.extend(
            _checked(trial, spec, info, is_installed=spec not in fresh) for spec, info in zip(specs, infos, strict=True)
        )
        return reply

    def _trial(self, specs: Sequence[JoinSpec], elsewhere: Sequence[JoinSpec]) -> tuple[Engine, list[JoinInfo]]:
        """Return an engine without rows that has the installed joins and these, and these as it has them."""
        config = self._served.config
        trial = Engine(key_bytes_max=config.key_bytes_max, value_bytes_max=config.value_bytes_max)
        names = {join.spec: join.name for join in self._engine.joins()}
        trial.add_joins([*names, *elsewhere], names=names)
        return trial, trial.add_joins(specs)

    def _sources(self, trial: Engine, specs: Sequence[JoinSpec]) -> tuple[list[bytes], list[bytes]]:
        """Return some base rows of each source of joins, and of the joins that compute their sources."""
        rows: dict[bytes, bytes] = {}
        for first, last in _ranges([join.spec for join in trial.joins()], specs):
            found = self._engine.base_rows(first, last, _SAMPLE_ROWS)
            rows.update(zip(*found, strict=True))
            if len(rows) > _SAMPLED_ROWS_MAX:
                break
        keys = sorted(rows)
        return keys, [rows[key] for key in keys]


def _ranges(installed: Sequence[JoinSpec], specs: Iterable[JoinSpec]) -> Iterable[tuple[bytes, bytes]]:
    """Return the ranges of the sources of joins, and of the joins below them."""
    ranges: dict[tuple[bytes, bytes], None] = {}
    todo, seen = list(specs), set(specs)
    while todo:
        for source in todo.pop().sources:
            ranges[keys_of(source.pattern)] = None
            below = {spec for spec in installed if spec.output.table == source.pattern.table} - seen
            seen |= below
            todo += below
    return ranges


def _checked(trial: Engine, spec: JoinSpec, info: JoinInfo, *, is_installed: bool) -> pb.CheckedJoin:
    looked_at, matching = [], []
    for source in spec.sources:
        match = compile_matcher(source.pattern).match
        keys = _scanned(trial, *keys_of(source.pattern), _SAMPLE_ROWS).keys
        looked_at.append(len(keys))
        matching.append(sum(match(key) is not None for key in keys))
    # The scan counts what gives no row, and the explanation tells of it.
    _scanned(trial, *keys_of(spec.output), _SHOWN_ROWS)
    explanation = encode.join_explanation(trial.explain_join(info.name))
    shown = _shown(_rows_alone(trial, spec))
    return pb.CheckedJoin(
        explanation=explanation,
        is_installed=is_installed,
        looked_at=looked_at,
        matching=matching,
        keys=shown.keys,
        values=shown.values,
    )


def _rows_alone(trial: Engine, spec: JoinSpec) -> Rows:
    """Return the first rows of a join, without those of other joins of its table."""
    of_table = [join for join in trial.joins() if join.spec.output.table == spec.output.table]
    for join in of_table:
        if join.spec != spec:
            trial.drop_join(join.name)
    rows = _scanned(trial, *keys_of(spec.output), _SHOWN_ROWS)
    if len(of_table) > 1:
        # All of them are installed again, in their order, which says whose values are shown.
        trial.drop_join(next(join.name for join in of_table if join.spec == spec))
        trial.add_joins([join.spec for join in of_table], names={join.spec: join.name for join in of_table})
    return rows


def _scanned(trial: Engine, first: bytes, last: bytes, limit: int) -> Rows:
    """Return the first rows of a range, none if too much would have to be computed for them."""
    trial.limit_memory(trial.ledger.total_bytes + _TRIAL_BYTES)
    try:
        return trial.scan(first, last, limit=limit, now=time.monotonic())
    except LimitExceededError:
        return Rows([], [])


def _shown(rows: Rows) -> Rows:
    """Return as many of the first rows as may be shown."""
    left, count = _SHOWN_BYTES, 0
    for key, value in zip(*rows, strict=True):
        left -= len(key) + len(value)
        if left < 0:
            break
        count += 1
    return Rows(rows.keys[:count], rows.values[:count])


def _problem(error: JoinError) -> pb.JoinProblem:
    problem = pb.JoinProblem(reason=error.reason, hint=error.hint)
    if (span := error.span) is not None:
        problem.start, problem.end, problem.line, problem.column = span.start, span.end, span.line, span.column
    return problem
