"""Statements to the nodes of Cassandra: another node gets one as well if the first takes its time.

    statement -> node a, says nothing for a while -> node b, answers: its rows are the result
                 a counts as late until it answers, and comes last in the meantime

A while is what most answers take, three times: where all nodes are slow, more requests would make them slower. A
statement may so be carried out twice, which is as good as once for all statements here. Needs the extra cassandra.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

from cassandra import (
    CoordinationFailure,
    OperationTimedOut,
    RequestExecutionException,
    RequestValidationException,
    Timeout,
    Unavailable,
)
from cassandra.cluster import EXEC_PROFILE_DEFAULT, NoHostAvailable, Session
from cassandra.connection import ConnectionException
from cassandra.pool import Host
from cassandra.protocol import ErrorMessage
from cassandra.protocol import RequestValidationException as RequestRefused

from pequod_views.versioned.records import QuorumError, StatementRefusedError

#: Of the time that answers take: what the newest of them counts.
_NEWEST: Final = 0.1
_TIMES: Final = 3.0
#: Errors of a node that cannot do its part now.
AWAY: Final = (
    RequestExecutionException,
    OperationTimedOut,
    NoHostAvailable,
    ConnectionException,
    OSError,
    # Of a version that the driver does not know, such as that the end of a swap is unknown.
    ErrorMessage,
)


class CassandraNodes:
    """The nodes of a cluster, each of which takes any statement.

    Args:
        session: Connected to the nodes; its policy of load balancing says which are asked first.
        name: That of the cluster, for messages.
        nodes_max: How many nodes get one statement, at most.
        timeout_s: How long a node may take.
    """

    def __init__(self, session: Session, name: str, nodes_max: int, timeout_s: float) -> None:
        self._session = session
        self._name = name
        self._nodes_max = nodes_max
        self._timeout_s = timeout_s
        #: How many requests of each node take longer than they should.
        self._late: Counter[Host] = Counter()
        #: The time that answers take, by the least time that another node waits: those of another kind take longer.
        self._usual_s: dict[float, float] = {}

    async def ask(self, statement: Any, wanted: int, pause_s: float) -> list[Any]:
        """Return the rows that a statement has.

        Args:
            wanted: How many replicas have to answer the node, for messages; the statement says it to Cassandra.
            pause_s: When another node gets the statement as well, at the soonest.

        Raises:
            QuorumError: No node reaches enough replicas.
            StatementRefusedError: Cassandra refuses the statement.
        """
        loop, nodes = asyncio.get_running_loop(), self._nodes(statement)
        while_s = min(max(pause_s, _TIMES * self._usual_s.get(pause_s, 0.0)), max(pause_s, self._timeout_s / 4))
        #: The nodes that were asked, and when.
        working: dict[asyncio.Future[list[Any]], tuple[Host, float]] = {}
        failures: dict[Host, Exception] = {}
        while True:
            node = next(nodes, None)
            if node is not None:
                working[self._send(node, statement)] = node, loop.time()
            elif not working:
                reasons = sorted(f"{node.address}: {_reason(error)}" for node, error in failures.items())
                raise QuorumError(wanted, max(map(_answered, failures.values()), default=0), reasons)
            done, _ = await asyncio.wait(
                working, timeout=None if node is None else while_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                self._pass_by(working)
            for future in done:
                (node, sent_s), error = working.pop(future), future.exception()
                if error is None:
                    usual_s = self._usual_s.get(pause_s, 0.0)
                    self._usual_s[pause_s] = usual_s + _NEWEST * (loop.time() - sent_s - usual_s)
                    return future.result()
                if isinstance(error, (RequestValidationException, RequestRefused)):
                    raise StatementRefusedError(self._name, str(error)) from error
                if not isinstance(error, AWAY):
                    raise error
                failures[node] = error

    def _nodes(self, statement: Any) -> Iterator[Host]:
        """Return whom to ask, those that are not late first."""
        policy = self._session.get_execution_profile(EXEC_PROFILE_DEFAULT).load_balancing_policy
        plan = list(policy.make_query_plan(self._session.keyspace, statement))
        return islice(sorted(plan, key=lambda node: self._late[node] > 0), self._nodes_max)

    def _send(self, node: Host, statement: Any) -> asyncio.Future[list[Any]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()
        # Looked at, so that asyncio does not tell of it; a node that was not waited for may fail.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        request = self._session.execute_async(statement, timeout=self._timeout_s, host=node)
        request.add_callbacks(partial(_tell, loop, future.set_result), partial(_tell, loop, future.set_exception))
        return future

    def _pass_by(self, working: dict[asyncio.Future[list[Any]], tuple[Host, float]]) -> None:
        for future, (node, _) in working.items():
            self._late[node] += 1
            future.add_done_callback(partial(self._catch_up, node))

    def _catch_up(self, node: Host, _: asyncio.Future[list[Any]]) -> None:
        self._late[node] -= 1


def _tell(loop: asyncio.AbstractEventLoop, settle: Callable[[Any], None], outcome: Any) -> None:
    """Bring what a thread of the driver was told to the loop, if that still runs."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(settle, outcome)


def _answered(error: Exception) -> int:
    """Return how many replicas answered, as far as an error says it."""
    if isinstance(error, Unavailable):
        return int(error.alive_replicas or 0)
    if isinstance(error, (Timeout, CoordinationFailure)):
        return int(error.received_responses or 0)
    return 0


def _reason(error: Exception) -> str:
    match error:
        case Unavailable():
            return f"it sees {error.alive_replicas} replicas, and {error.required_replicas} have to answer"
        case Timeout() | CoordinationFailure():
            return f"{error.received_responses} replicas answered it, and {error.required_responses} have to"
        case OperationTimedOut():
            return "it did not answer in time"
        case NoHostAvailable():
            return ", ".join({str(cause) for cause in error.errors.values()}) or "it cannot be reached"
        case ErrorMessage():
            return str(error.message)
        case _:
            return str(error) or type(error).__name__
