"""The places that requests are read in: whose turn it is, who waits behind itself alone, and who makes way."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from pequod_server.memory.places import Places

from pequod.engine import LimitExceededError

MIB = 1 << 20
#: Requests are small or the longest.
SMALL, LARGE = 100, 4 * MIB


class Client:
    """Calls of one connection, and the order in which their requests came."""

    def __init__(self, places: Places, name: str, order: list[str]) -> None:
        self._places = places
        self.name = name
        self._order = order
        self.tasks: list[asyncio.Task[None]] = []

    def call(self, size_bytes: int = SMALL, *, comes: asyncio.Event | None = None) -> asyncio.Task[None]:
        """Begin a call, whose request comes in the next turn of the loop or with an event."""

        async def read() -> None:
            async with self._places.reading(self.name) as reading:
                await (asyncio.sleep(0) if comes is None else comes.wait())
                reading.size_bytes = size_bytes
                self._order.append(self.name)

        self.tasks.append(asyncio.create_task(read()))
        return self.tasks[-1]


def _clients(names: str, places: Places) -> tuple[list[str], dict[str, Client]]:
    order: list[str] = []
    return order, {name: Client(places, name, order) for name in names}


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.005)


async def test_peers_take_turns_however_many_calls_one_of_them_begins() -> None:
    places = Places(4 * MIB, 4 * MIB)
    order, clients = _clients("abc", places)
    tasks = [clients["a"].call(LARGE) for _ in range(30)]
    await asyncio.sleep(0)
    tasks += [clients[name].call(LARGE) for name in "bcbc"]
    await asyncio.gather(*tasks)
    assert sorted(order[:8]) == [*"aaaabbcc"], "each has every third turn, once it waits"
    assert order[8:] == [*"a" * 26]
    places._check()


async def test_a_peer_whose_requests_do_not_come_waits_behind_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    places, never = Places(4 * MIB, 4 * MIB), asyncio.Event()
    order, clients = _clients("ab", places)
    silent = [clients["a"].call(comes=never) for _ in range(200)]
    await _until(lambda: bool(places.late))
    # From now on it keeps for ever what it gets.
    monkeypatch.setattr(places._late, "_place_s", 3600)
    for _ in range(100):
        await clients["b"].call()
        await clients["b"].call(LARGE)
    assert order == ["b"] * 200
    places._check()
    never.set()
    await asyncio.gather(*silent)
    assert not places.late
    places._check()


async def test_known_peers_do_not_wait_for_new_ones_that_send_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    places, never = Places(4 * MIB, 4 * MIB), asyncio.Event()
    # New ones keep for ever what they get.
    monkeypatch.setattr(places._any, "_place_s", 3600)
    order, clients = _clients("a", places)
    await clients["a"].call()
    silent = [Client(places, f"new{number}", order).call(comes=never) for number in range(300)]
    await asyncio.sleep(0)
    for _ in range(100):
        await clients["a"].call()
    assert order == ["a"] * 101
    assert not places.late, "the new ones still wait"
    places._check()
    never.set()
    await asyncio.gather(*silent)


async def test_a_new_peer_has_its_turn_while_new_ones_come_that_send_nothing() -> None:
    places, never = Places(4 * MIB, 4 * MIB), asyncio.Event()
    order, clients = _clients("a", places)
    silent = [Client(places, f"new{number}", order).call(comes=never) for number in range(2000)]
    asked = clients["a"].call()
    silent += [Client(places, f"later{number}", order).call(comes=never) for number in range(2000)]
    await asked
    assert len(places.late) < 2100, "it waits for those alone that were there before"
    for task in silent:
        task.cancel()
    await asyncio.gather(*silent, return_exceptions=True)
    places._check()


async def test_a_known_peer_has_a_quarter_of_the_places() -> None:
    places, never = Places(4 * MIB, 4 * MIB), asyncio.Event()
    order, clients = _clients("abcdef", places)
    for client in clients.values():
        await client.call()
    silent = [clients["a"].call(comes=never) for _ in range(16)]
    await asyncio.sleep(0)
    assert places._known.free == places._known.places - 4
    for name in "bcdef":
        await clients[name].call()
    assert order == [*"abcdef", *"bcdef"]
    never.set()
    await asyncio.gather(*silent)


async def test_large_requests_are_read_one_after_another_from_all_peers_together() -> None:
    places, comes = Places(4 * MIB, 4 * MIB), asyncio.Event()
    _, clients = _clients("abcd", places)
    tasks = [client.call(LARGE, comes=comes) for client in clients.values() for _ in range(3)]
    await asyncio.sleep(0)
    assert places._any.free == 0
    assert sum(places._any.held.values()) == 1
    comes.set()
    await asyncio.gather(*tasks)
    assert not places._known_names, "who sends large requests is not known for small ones"


@pytest.mark.parametrize("late_count", [1, 20])
async def test_the_oldest_call_of_the_peer_with_most_of_them_makes_way(late_count: int) -> None:
    places, never = Places(4 * MIB, 4 * MIB), asyncio.Event()
    _, clients = _clients("ab", places)
    error = LimitExceededError("calls_max", 11, 10)
    honest = clients["b"].call(comes=never)
    await asyncio.sleep(0)
    assert not places.make_way(error, {honest}), "nobody is late"
    await _until(lambda: len(places.late) == 1)
    silent = [clients["a"].call(comes=never) for _ in range(50)]
    await _until(lambda: len(places.late) > late_count)
    assert not places.make_way(error, set()), "none of those who may end is late"
    for _ in range(48):
        assert places.make_way(error, {honest, *silent})
        places._check()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    done = [task for task in silent if task.done()]
    assert len(done) == 48
    assert {str(task.exception()) for task in done} == {str(error)}
    assert not honest.done()
    never.set()
    await asyncio.gather(honest, *(task for task in silent if task not in done))
    places._check()


async def test_only_so_many_calls_wait_behind_late_ones_while_memory_is_short() -> None:
    places, never = Places(4 * MIB, 4 * MIB), asyncio.Event()
    _, clients = _clients("a", places)
    silent = [clients["a"].call(comes=never) for _ in range(800)]
    await _until(lambda: bool(places.late))
    surplus = places.surplus(1)
    waiting = 800 - len(places.late) - sum(places._late.held.values())
    assert len(surplus) == len(places.late) - 1 + waiting - 500
    for task in silent:
        task.cancel()
    await asyncio.gather(*silent, return_exceptions=True)
    places._check()


@pytest.mark.parametrize("seed", range(5))
async def test_places_add_up_whatever_calls_do(seed: int) -> None:
    draw, places, comes = Random(seed), Places(8 * MIB, 4 * MIB), asyncio.Event()
    _, clients = _clients("abcde", places)
    tasks: list[asyncio.Task[None]] = []
    for step in range(600):
        client = clients[draw.choice("abcde")]
        match draw.randrange(10):
            case 0 if tasks:
                draw.choice(tasks).cancel()
            case 1:
                places.make_way(LimitExceededError("calls_max", 2, 1), set(draw.sample(tasks, len(tasks) // 2)))
            case 2:
                await asyncio.sleep(draw.choice([0, 0, 0, 0.002]))
            case 3:
                tasks.append(client.call(draw.choice([SMALL, LARGE]), comes=comes))
            case _:
                tasks.append(client.call(draw.choice([SMALL, LARGE])))
        if step % 300 == 299:
            comes.set()
            comes = asyncio.Event()
            await asyncio.sleep(0.03)
        places._check()
    comes.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    places._check()
    assert not places.late
    assert not places._peers
