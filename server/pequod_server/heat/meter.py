"""Measures what a server's processor time goes to: samples of calls, by groups of keys.

    hot calls, natively   -> samples ┐                     ┌ sketch: the hottest groups
    all others, `note`    -> samples ┴ once a second, drain ┤
                                                           └ recent: some of the samples themselves, for ranges of keys

Samples say how the time is shared out; how much it is, the process says. So what comes before and after a call is
shared out as well.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple

from pequod_proto import pequod_pb2 as pb

from pequod.cluster.grouping import Grouping
from pequod.native.http2 import NativeHotCalls, Sample
from pequod_server.heat.sketch import Sketch

#: After this time, what was counted counts half.
HALF_LIFE_S: Final = 30.0
#: How often samples are taken in.
_TICK_S: Final = 1.0
#: As pequod/native/http2/samples.hpp has it.
_SAMPLE_S: Final = 0.0005
#: Beyond it, a call has waited for others: that is not its own time.
_CALL_S_MAX: Final = 0.005
#: The processor time that a second of samples stands for at most: with what comes before and after a call, puts of a
#: plain gRPC client, one after the other, take 21 s for each second of their own.
_AROUND_MAX: Final = 100.0
#: Groups in the sketch: what takes a hundredth of the time is found for certain.
_GROUPS: Final = 256
#: Groups that statistics tell.
_TOLD: Final = 16
#: Samples that are kept, and how many of each second.
_RECENT: Final = 4096
_RECENT_A_TICK: Final = 64
#: Samples of calls that are not hot that wait.
_OWN_MAX: Final = 8192


class Recent(NamedTuple):
    """A sample that is kept: for how much time and how many commands it stands."""

    at_s: float
    key: bytes
    is_write: bool
    cpu_s: float
    commands: float


class HeatMeter:
    """The heat of one server.

    Args:
        clock: Returns the time in seconds.
        process_s: Returns the processor time of the process so far, in seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, process_s: Callable[[], float] = time.process_time
    ) -> None:
        self._clock = clock
        self._process_s = process_s
        #: Returns how keys are grouped at present.
        self.grouping: Callable[[], Grouping] = lambda: _PLAIN
        #: Has samples of its own; None: no call is hot.
        self.hot: NativeHotCalls | None = None
        self._sketch = Sketch(_GROUPS)
        self._recent: deque[Recent] = deque(maxlen=_RECENT)
        # Which samples are kept is nobody's secret.
        self._random = Random(0)  # noqa: S311
        self._own: list[Sample] = []
        self._due_s = 0.0
        self._last_s, self._last_process_s = clock(), process_s()
        #: All that fades: time that went by, processor time, and what the samples stand for.
        self._window_s = self._cpu_s = self._sampled_s = 0.0

    def note(self, key: bytes, is_write: bool, seconds: float, commands: int = 1) -> None:  # noqa: FBT001 - each call
        """Take note of a call of some commands; the key is that of one of them."""
        if self.is_due(seconds):
            self.sample(key, is_write, seconds, commands)

    def is_due(self, seconds: float) -> bool:
        """Count the time of a call or a batch; return whether it has to be a sample: then `sample` follows."""
        self._due_s += min(seconds, _CALL_S_MAX)
        return self._due_s >= _SAMPLE_S

    def sample(self, key: bytes, is_write: bool, seconds: float, commands: int = 1) -> None:  # noqa: FBT001 - as `note`
        """Have a call or a batch stand for the time since the last sample."""
        if len(self._own) < _OWN_MAX:
            self._own.append((key, is_write, self._due_s, min(seconds, _CALL_S_MAX) / commands))
        self._due_s = 0.0

    async def run(self) -> None:
        """Take samples in, again and again, until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            self.tick()

    def tick(self) -> None:
        """Take in what there is.

        Cost:
            2 us a sample; there are two thousand a second at the most.
        """
        now_s, process_s = self._clock(), self._process_s()
        elapsed_s = now_s - self._last_s
        factor = 0.5 ** (elapsed_s / HALF_LIFE_S)
        self._window_s = self._window_s * factor + elapsed_s
        self._cpu_s = self._cpu_s * factor + process_s - self._last_process_s
        self._sampled_s *= factor
        self._sketch.fade(factor)
        self._last_s, self._last_process_s = now_s, process_s
        samples, self._own = self._own, []
        if self.hot is not None:
            samples += self.hot.samples()
        if not samples:
            return
        group_of = self.grouping().group_of
        for key, is_write, cpu_s, own_s in samples:
            commands = _commands(cpu_s, own_s)
            reads, writes = (0.0, commands) if is_write else (commands, 0.0)
            self._sketch.add(group_of(key), cpu_s, reads=reads, writes=writes)
            self._sampled_s += cpu_s
        self._sketch.shrink()
        kept = samples if len(samples) <= _RECENT_A_TICK else self._random.sample(samples, _RECENT_A_TICK)
        share = len(samples) / len(kept)
        for key, is_write, cpu_s, own_s in kept:
            commands = _commands(cpu_s, own_s) * share
            self._recent.append(Recent(now_s, key, is_write, cpu_s * share, commands))

    @property
    def cores(self) -> float:
        """The cores that the process keeps busy."""
        return self._cpu_s / self._window_s if self._window_s else 0.0

    @property
    def scale(self) -> float:
        """The cores that a second of samples stands for.

        What a server does by itself, without any call, is nobody's: else one that is idle would lay all its time on the
        few keys that were written last.
        """
        if not self._sampled_s or not self._window_s:
            return 0.0
        return min(self._cpu_s / self._sampled_s, _AROUND_MAX) / self._window_s

    @property
    def window_s(self) -> float:
        """The time that went by, as it counts."""
        return self._window_s

    def recent(self) -> Iterator[Recent]:
        """Yield the samples that are kept, with what they count now."""
        for one in self._recent:
            factor = 0.5 ** ((self._last_s - one.at_s) / HALF_LIFE_S)
            yield one._replace(cpu_s=one.cpu_s * factor, commands=one.commands * factor)

    def say(self, reply: pb.StatsReply) -> None:
        """Write the heat into a reply, without that of ranges."""
        reply.heat.cores = self.cores
        reply.heat.groups.extend(self.groups())

    def groups(self) -> list[pb.GroupHeat]:
        """Return the hottest groups, the first the hottest."""
        scale, window_s = self.scale, self._window_s or 1.0
        return [
            pb.GroupHeat(
                group=group,
                cores=(one.cpu_s - one.error_s) * scale,
                cores_error=one.error_s * scale,
                reads=one.reads / window_s,
                writes=one.writes / window_s,
            )
            for group, one in self._sketch.top(_TOLD)
            if one.cpu_s > one.error_s
        ]


_PLAIN: Final = Grouping(())


def _commands(cpu_s: float, own_s: float) -> float:
    """Return for how many commands a sample stands, of which its own took ``own_s``."""
    return cpu_s / own_s if own_s > 0 else 1.0
