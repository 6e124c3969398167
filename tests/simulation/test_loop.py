"""The simulated loop and its links."""

import asyncio
import time
from random import Random

import pytest

from tests.simulation.links import ConnectionLostError, End, Network
from tests.simulation.loop import SimulatedLoop, StuckError, clocks


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> tuple[float, float]:
        begun_s = time.monotonic()
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(7200))
        return begun_s, time.monotonic()

    loop, real_s = SimulatedLoop(1), time.perf_counter()
    with clocks(loop, 1):
        assert loop.run(main()) == pytest.approx((0.0, 7200.0), abs=1e-6)
    assert time.perf_counter() - real_s < 60


def test_the_order_of_what_is_ready_follows_from_the_seed() -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def note(number: int) -> None:
            order.append(number)

        await asyncio.gather(*map(note, range(10)))
        return order

    orders = [SimulatedLoop(seed).run(main()) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == list(range(10))


def test_a_stuck_schedule_names_the_tasks_that_wait() -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(wait_for_ever(), name="lonely")

    with pytest.raises(StuckError, match=r"(?s)nothing is ready and nothing is timed.*lonely waits at .*test_loop"):
        SimulatedLoop(1).run(main())


def test_threads_are_turns_of_the_loop() -> None:
    async def main() -> int:
        return await asyncio.to_thread(sum, [1, 2])

    assert SimulatedLoop(1).run(main()) == 3


async def talk(act: str) -> list[object]:
    """Send ten messages to a machine, with a fault after the fifth; return what it got, and what both ends learnt."""
    network, got = Network(Random(1)), list[object]()

    async def serve(end: End) -> None:
        try:
            while True:
                got.append(await end.receive(5))
        except ConnectionLostError as error:
            got.append(str(error))

    network.listen("b", serve)
    end = network.connect("a", "b")
    for number in range(10):
        if number == 5:
            await asyncio.sleep(1)
            if act:
                getattr(network, act)("a", "b")
        try:
            end.send(number)
        except ConnectionLostError:
            got.append("a knows")
            break
    await asyncio.sleep(60)
    return got


@pytest.mark.parametrize(
    ("act", "end"),
    [
        ("", [5, 6, 7, 8, 9, "b <- a: silent for 5 s"]),
        ("cut", ["b <- a: silent for 5 s"]),
        ("reset", ["a knows", "b <- a"]),
        ("half_open", ["a knows", "b <- a: silent for 5 s"]),
    ],
)
def test_links_deliver_in_order_until_they_are_broken(act: str, end: list[object]) -> None:
    assert SimulatedLoop(3).run(talk(act)) == [0, 1, 2, 3, 4, *end]
