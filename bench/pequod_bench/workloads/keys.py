"""Twip's keys, joins and tweets.

    s|<user:8>|<poster:8>             -> 1        user follows poster
    p|<poster:8>|<time:10>            -> tweet    poster wrote at that tick
    t|<user:8>|<time:10>|<poster:8>   -> tweet    computed: user's timeline

>>> timeline_key(3, 17, 9)
b't|00000003|0000000017|00000009'
>>> timeline_last(3) > timeline_key(3, 9999999999, 99999999)
True
"""

from __future__ import annotations

from typing import Final, Literal

Mode = Literal["push", "pull"]

PUSH_JOIN: Final = "t|<user:8>|<time:10>|<poster:8> = check s|<user>|<poster> copy p|<poster>|<time>;"
PULL_JOIN: Final = "t|<user:8>|<time:10>|<poster:8> = pull check s|<user>|<poster> copy p|<poster>|<time>;"
#: Posts under cp| go into no timeline: each read looks through all of them, in the order of time (paper §2.3).
CELEBRITY_JOINS: Final = (
    "ct|<time:10>|<poster:8> = copy cp|<poster>|<time>;"
    + PUSH_JOIN
    + "t|<user:8>|<time:10>|<poster:8> = pull copy ct|<time>|<poster> check s|<user>|<poster>;"
)
JOINS: Final[dict[Mode, str]] = {"push": PUSH_JOIN, "pull": PULL_JOIN}

#: The range of all timelines.
TIMELINES: Final = (b"t|", b"t}")
#: The value of every subscription.
FOLLOWS: Final = b"1"
_FILLER: Final = b"the sea was calm and the whale was nowhere to be seen " * 8


def subscription_key(user: int, poster: int) -> bytes:
    """Return the key that says that user follows poster."""
    return b"s|%08d|%08d" % (user, poster)


def post_key(poster: int, tick: int) -> bytes:
    """Return the key of what poster wrote at that tick."""
    return b"p|%08d|%010d" % (poster, tick)


def celebrity_key(poster: int, tick: int) -> bytes:
    """Return the key of what poster wrote at that tick, where celebrities' posts are kept apart."""
    return b"cp|%08d|%010d" % (poster, tick)


def timeline_key(user: int, tick: int, poster: int) -> bytes:
    """Return the key of poster's tweet of that tick in user's timeline."""
    return b"t|%08d|%010d|%08d" % (user, tick, poster)


def timeline_first(user: int, tick: int) -> bytes:
    """Return where the part of user's timeline from that tick on begins."""
    return b"t|%08d|%010d" % (user, tick)


def timeline_last(user: int) -> bytes:
    """Return the end of user's timeline: the first key after it that another prefix may have."""
    return b"t|%08d}" % user


def user_of(key: bytes) -> bytes:
    """Return the user of a key of a subscription or of a timeline.

    >>> user_of(subscription_key(7, 9)), user_of(timeline_first(7, 0))
    (b'00000007', b'00000007')
    """
    return key[2:10]


def tweet(tick: int, size_bytes: int) -> bytes:
    """Return the text written at that tick: the tick and filler, cut to size, so that most tweets differ."""
    text = b"%d " % tick + _FILLER
    return text[:size_bytes] if size_bytes <= len(text) else text.ljust(size_bytes, b".")
