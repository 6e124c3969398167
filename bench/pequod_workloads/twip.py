"""Twip, a service like Twitter: its keys, joins and tweets, and the numbers by which graphs and operations are drawn.

    s|<user:8>|<poster:8>             -> 1        user follows poster
    p|<poster:8>|<time:10>            -> tweet    poster wrote at that tick
    t|<user:8>|<time:10>|<poster:8>   -> tweet    computed: user's timeline

>>> timeline_key(3, 17, 9)
b't|00000003|0000000017|00000009'
>>> timeline_last(3) > timeline_key(3, 9999999999, 99999999)
True

Source:
    Paper §2.1, §2.3 and §5.1, and the published benchmark's model.
"""

from __future__ import annotations

from typing import Final, Literal

Mode = Literal["push", "pull"]
#: How follows are drawn, where no file has them.
GraphModel = Literal["synthetic", "power-law"]

PUSH_JOIN: Final = "t|<user:8>|<time:10>|<poster:8> = check s|<user>|<poster> copy p|<poster>|<time>;"
PULL_JOIN: Final = PUSH_JOIN.replace("= check", "= pull check")
#: Posts under cp| go into no timeline: each read looks through all of them, in the order of time (paper §2.3).
CELEBRITY_JOINS: Final = (
    "ct|<time:10>|<poster:8> = copy cp|<poster>|<time>;"
    + PUSH_JOIN
    + "t|<user:8>|<time:10>|<poster:8> = pull copy ct|<time>|<poster> check s|<user>|<poster>;"
)
JOINS: Final[dict[Mode, str]] = {"push": PUSH_JOIN, "pull": PULL_JOIN}

SUBSCRIPTION: Final = b"s|%08d|%08d"
POST: Final = b"p|%08d|%010d"
TIMELINE: Final = b"t|%08d|%010d|%08d"
TIMELINE_FIRST: Final = b"t|%08d|%010d"
TIMELINE_LAST: Final = b"t|%08d}"
#: The range of all timelines.
TIMELINES: Final = (b"t|", b"t}")
#: The value of every subscription.
FOLLOWS: Final = b"1"
FILLER: Final = b"the sea was calm and the whale was nowhere to be seen "
_LONG_FILLER: Final = FILLER * 8

#: Keys have eight digits for a user and ten for a time, so that they sort as numbers do.
USERS_MAX: Final = 10**8
TICKS_MAX: Final = 10**10
#: How many others a user of the synthetic graph follows: uniform, both ends included.
FOLLOWS_MIN, FOLLOWS_MAX = 20, 200
#: Of the power-law graph, as in the paper's sample of Twitter: Pareto with this mean and exponent.
POWER_LAW_FOLLOWS_MEAN, POWER_LAW_FOLLOWS_MAX, POWER_LAW_EXPONENT = 40, 5_000, 1.5
#: How often an operation is a check, a subscription, a logout or a post.
WEIGHTS: Final = (100, 10, 5, 1)
#: The share of users who check their timelines at all, and how far back a check at login reads.
ACTIVE_PART: Final = 0.7
FULL_CHECK_TICKS: Final = 100_000
#: A user posts by the log of their followers; one with fewer followers than this, this often; one without never.
FEW_FOLLOWERS, FEW_FOLLOWERS_WEIGHT = 10, 0.1


def popularity(model: GraphModel, user_count: int) -> list[float]:
    """Return chances to be followed, relative to each other; users get them in an order that is drawn.

    Synthetic: ``10 + M*x``, with ``x = ((i+1)/n)^8`` and ``M = floor(100 / mean(x))``. Power law: ``(rank + 10)^-0.8``.
    """
    if model == "power-law":
        return [(rank + 10.0) ** -0.8 for rank in range(user_count)]
    x = [((i + 1) / user_count) ** 8 for i in range(user_count)]
    scale = int(100 * user_count / sum(x))
    return [10 + scale * part for part in x]


def active_count(user_count: int) -> int:
    """Return how many users check their timelines."""
    return max(1, round(user_count * ACTIVE_PART))


def subscription_key(user: int, poster: int) -> bytes:
    """Return the key that says that user follows poster."""
    return SUBSCRIPTION % (user, poster)


def post_key(poster: int, tick: int) -> bytes:
    """Return the key of what poster wrote at that tick."""
    return POST % (poster, tick)


def celebrity_key(poster: int, tick: int) -> bytes:
    """Return the key of what poster wrote at that tick, where celebrities' posts are kept apart."""
    return b"c" + POST % (poster, tick)


def timeline_key(user: int, tick: int, poster: int) -> bytes:
    """Return the key of poster's tweet of that tick in user's timeline."""
    return TIMELINE % (user, tick, poster)


def timeline_first(user: int, tick: int = 0) -> bytes:
    """Return where the part of user's timeline from that tick on begins."""
    return TIMELINE_FIRST % (user, tick)


def timeline_last(user: int) -> bytes:
    """Return the end of user's timeline: the first key after it that another prefix may have."""
    return TIMELINE_LAST % user


def timeline(user: int, tick: int = 0) -> tuple[bytes, bytes]:
    """Return the range of user's timeline from that tick on."""
    return TIMELINE_FIRST % (user, tick), TIMELINE_LAST % user


def posts_of(poster: int) -> tuple[bytes, bytes]:
    """Return the range of all that poster wrote."""
    return b"p|%08d|" % poster, b"p|%08d}" % poster


def tweet(tick: int, size_bytes: int = 140) -> bytes:
    """Return the text written at that tick: the tick and filler, cut to size, so that most tweets differ."""
    filler = _LONG_FILLER if size_bytes <= len(_LONG_FILLER) else FILLER * (size_bytes // len(FILLER) + 1)
    return (b"%d " % tick + filler)[:size_bytes]
