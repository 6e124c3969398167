"""Many capped timelines, to which others post for ever: the memory that they take stays what it was.

    python -m tests.soak.capped --timelines 100000 --posts 2000000 --seconds 600

An engine in this process, so that its bytes and those of the process are those of the timelines: no server stands
between. All timelines are read first. Then posts come, each of which removes the oldest post of its poster, so that
there are as many posts as ever. Between them timelines are read, users follow others, and newest posts are removed.
At the end, some timelines are recomputed from the posts, and must be what the engine shows.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import psutil
from pequod_grammar import parse

from pequod.engine import Engine

#: The last quarter may take this more than the second one.
GROWTH_MAX: Final = 0.05
#: How many posters each user follows, and how many posts a timeline shows.
FOLLOWED: Final = 3
KEPT: Final = 10
#: How many posts of each poster are there: far more than timelines show, so that timelines without a cap would grow.
STORED: Final = 50
_JOIN: Final = (
    f"t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:10> keep last {KEPT} of <user>"
)
_READS_A_ROUND: Final = 50
_POSTS_A_ROUND: Final = 400
_FOLLOWS_A_ROUND: Final = 20
_CHECKED: Final = 200
#: A soak goes on until there are as many samples, whatever time it takes.
_SAMPLES_MIN: Final = 8
_VALUE: Final = b"x" * 40


@dataclass
class Report:
    """What was seen."""

    #: (seconds, posts so far, bytes of the ledger, bytes of the process), at moments after the warm-up.
    samples: list[tuple[float, int, int, int]] = field(default_factory=list)
    checked: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def posts(self) -> int:
        """How many posts came."""
        return self.samples[-1][1]

    def growth(self, place: int) -> float:
        """Return by how much the mean of the last quarter is above that of the second: of one place of the samples."""
        sizes: list[float] = [sample[place] for sample in self.samples]
        quarter = len(sizes) // 4
        return _mean(sizes[-quarter:]) / _mean(sizes[quarter : 2 * quarter]) - 1

    @property
    def faults(self) -> list[str]:
        """What is wrong, in words."""
        grown = [(self.growth(2), "ledger"), (self.growth(3), "process")]
        return self.wrong + [f"the {what} has grown by {share:.1%}" for share, what in grown if share > GROWTH_MAX]


class Feed:
    """Timelines in an engine, and what each of them is made of."""

    def __init__(self, timelines: int, random: Random) -> None:
        self.engine = Engine()
        self.engine.add_joins(parse(_JOIN))
        self.timelines = timelines
        self.posters = max(2 * FOLLOWED, timelines // 10)
        self._random = random
        self._tick = 0
        self._follows = [random.sample(range(self.posters), FOLLOWED) for _ in range(timelines)]
        #: By poster: the times of the posts that are there.
        self._times: list[deque[int]] = [deque() for _ in range(self.posters)]
        for user, posters in enumerate(self._follows):
            for poster in posters:
                self.engine.put(b"s|%06d|%06d" % (user, poster), b"1")
        for _ in range(STORED):
            for poster in range(self.posters):
                self._post_as(poster)
        for user in range(timelines):
            self.read(user)

    def post(self) -> None:
        """Post as some poster, whose oldest post goes."""
        poster = self._random.randrange(self.posters)
        self._post_as(poster)
        if len(self._times[poster]) > STORED:
            self.engine.remove(b"p|%06d|%010d" % (poster, self._times[poster].popleft()))

    def retract(self) -> None:
        """Remove the newest post of some poster: older ones take its place."""
        poster = self._random.randrange(self.posters)
        if self._times[poster]:
            self.engine.remove(b"p|%06d|%010d" % (poster, self._times[poster].pop()))

    def change_follows(self) -> None:
        """Have some user follow another poster instead of one."""
        user, poster = self._random.randrange(self.timelines), self._random.randrange(self.posters)
        if poster not in self._follows[user]:
            at = self._random.randrange(FOLLOWED)
            self.engine.remove(b"s|%06d|%06d" % (user, self._follows[user][at]))
            self.engine.put(b"s|%06d|%06d" % (user, poster), b"1")
            self._follows[user][at] = poster

    def read_some(self) -> None:
        """Read some timelines, some of them from a moment on."""
        for _ in range(_READS_A_ROUND):
            since = max(0, self._tick - self._random.randrange(self._tick)) if self._random.random() < 0.5 else 0
            self.read(self._random.randrange(self.timelines), since)

    def read(self, user: int, since: int = 0) -> list[bytes]:
        """Return the keys of a timeline."""
        return self.engine.scan(b"t|%06d|%010d" % (user, since), b"t|%06d}" % user).keys

    def recomputed(self, user: int) -> list[bytes]:
        """Return what a timeline has to show."""
        posts = sorted((time, poster) for poster in self._follows[user] for time in self._times[poster])
        return [b"t|%06d|%010d|%06d" % (user, *post) for post in posts[-KEPT:]]

    def _post_as(self, poster: int) -> None:
        self._tick += 1
        self.engine.put(b"p|%06d|%010d" % (poster, self._tick), _VALUE)
        self._times[poster].append(self._tick)


def soak(timelines: int, posts: int, seconds: float, *, seed: int = 1) -> Report:
    """Post until that many posts are there, or the time is up; report what it took.

    Args:
        timelines: How many are read first.
        posts: How many posts come at the most.
        seconds: How long they do at the most, with the first reads.
        seed: Of what is drawn.
    """
    random, report, process = Random(seed), Report(), psutil.Process()
    begun_s = time.monotonic()
    feed = Feed(timelines, random)
    posted = 0
    while posted < posts and (time.monotonic() - begun_s < seconds or len(report.samples) < _SAMPLES_MIN):
        for _ in range(_POSTS_A_ROUND):
            feed.post()
        feed.retract()
        for _ in range(_FOLLOWS_A_ROUND):
            feed.change_follows()
        feed.read_some()
        posted += _POSTS_A_ROUND
        # First all posters post as often as a timeline has rows, so that each one has the spare rows that it gets.
        if posted >= feed.posters * KEPT:
            ledger_bytes = feed.engine.ledger.total_bytes
            report.samples.append((time.monotonic() - begun_s, posted, ledger_bytes, process.memory_info().rss))
    for user in random.sample(range(timelines), min(_CHECKED, timelines)):
        report.checked += 1
        if feed.read(user) != feed.recomputed(user):
            report.wrong.append(f"timeline {user} is wrong")
    return report


def _mean(sizes: Sequence[float]) -> float:
    return sum(sizes) / len(sizes)


def main() -> int:
    """Run it, and print the sizes over time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timelines", type=int, default=100_000)
    parser.add_argument("--posts", type=int, default=10_000_000, help="how many come at the most")
    parser.add_argument("--seconds", type=float, default=600, help="how long they do at the most")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report = soak(options.timelines, options.posts, options.seconds, seed=options.seed)
    for elapsed_s, posts, ledger_bytes, rss_bytes in report.samples[:: max(1, len(report.samples) // 24)]:
        ledger_mib, rss_mib = ledger_bytes / 2**20, rss_bytes / 2**20
        print(f"{elapsed_s:7.0f} s {posts:10,} posts  ledger {ledger_mib:8.1f} MiB  process {rss_mib:8.1f} MiB")
    print(f"the last quarter against the second: ledger {report.growth(2):+.2%}, process {report.growth(3):+.2%}")
    print(f"{report.checked} timelines recomputed, {len(report.wrong)} of them wrong")
    for fault in report.faults:
        print(f"FAULT {fault}")
    return bool(report.faults)


if __name__ == "__main__":
    sys.exit(main())
