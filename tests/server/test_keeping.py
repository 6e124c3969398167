"""Which connections are asked for a sign of life, and which are closed."""

from pequod_server.transport.keeping import Keeping


class FakeConnection:
    def __init__(self, opened_s: float, read_s: float) -> None:
        self.opened_s, self.read_s = opened_s, read_s
        self.pinged_s: float | None = None
        self.pings: list[float] = []
        self.is_aborted = False

    def ping(self) -> None:
        self.pinged_s = self.now_s
        self.pings.append(self.now_s)

    def abort(self) -> None:
        self.is_aborted = True

    now_s = 0.0


def looked(connection: FakeConnection, *times_s: float, keepalive_s: float = 10, timeout_s: float = 5) -> None:
    keeping = Keeping(keepalive_s, timeout_s, [connection])
    for now_s in times_s:
        connection.now_s = now_s
        keeping.look(now_s)


def test_a_silent_connection_is_asked_once_and_closed_if_it_does_not_answer() -> None:
    silent = FakeConnection(0, 1)
    looked(silent, 5)
    assert silent.pings == []
    looked(silent, 12, 14)
    assert silent.pings == [12]
    assert not silent.is_aborted
    looked(silent, 18)
    assert silent.is_aborted


def test_a_connection_that_never_said_anything_is_closed_without_keepalive_too() -> None:
    connection = FakeConnection(0, 0)
    looked(connection, 19, keepalive_s=0)
    assert not connection.is_aborted
    looked(connection, 21, keepalive_s=0)
    assert connection.is_aborted


def test_an_idle_connection_stays_without_keepalive() -> None:
    connection = FakeConnection(0, 1)
    looked(connection, 1000, keepalive_s=0)
    assert connection.pings == []
    assert not connection.is_aborted
