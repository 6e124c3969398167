"""Twip without cache joins: the client keeps the timelines, as applications do on an ordinary cache.

    publish: write the post, read the poster's followers ... then append the post to each follower's timeline
    follow:  write the subscription, read the poster's posts ... then copy them into the timeline
    check:   read the timeline

What follows the dots needs a reply, so it goes into a message some messages later, and no call waits for it:

    message 0     check follow publish check ...
    message 1     check check publish ...
      ...
    message W     what the replies to message 0 ask for, and new operations
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pequod_bench.systems.system import BATCH, WINDOW, SystemWorkload, Work
from pequod_bench.workloads.keys import tweet
from pequod_bench.workloads.stream import CHECK, LOGOUT, SUBSCRIBE

#: A post as the store keeps it in a timeline.
Post = TypeVar("Post")


@dataclass(frozen=True, slots=True)
class Answers(Generic[Post]):
    """What came back for a message."""

    #: Rows of all checks.
    row_count: int
    #: For each follow, the posts to copy; none if the subscription was there already.
    posts: Sequence[Sequence[Post]]
    #: For each publish, the poster's followers.
    followers: Sequence[Iterable[int]]


class TimelineMessage(Protocol[Post]):
    """Commands that go out together, carried out in their order."""

    @property
    def command_count(self) -> int:
        """Commands so far."""

    def check(self, user: int, since: int) -> None:
        """Read a timeline from a tick on."""

    def follow(self, user: int, poster: int) -> None:
        """Write a subscription, then read what the poster wrote so far."""

    def publish(self, poster: int, tick: int, text: bytes) -> Post:
        """Write a post, then read who follows the poster; return it as timelines hold it."""

    def deliver(self, users: Collection[int], post: Post) -> None:
        """Append a post to timelines."""

    def copy(self, user: int, posts: Sequence[Post]) -> None:
        """Put earlier posts into a timeline."""

    def send(self) -> Awaitable[Answers[Post]]:
        """Send it; the answers come later."""


@dataclass(frozen=True, slots=True)
class _Sent(Generic[Post]):
    """A message under way, and whom its answers concern."""

    answers: Awaitable[Answers[Post]]
    followers: list[int]
    published: list[Post]


class ManagedSession(Generic[Post]):
    """What every session does whose client keeps the timelines.

    Args:
        workload: What is carried out.
        new_message: Returns an empty message.
    """

    def __init__(self, workload: SystemWorkload, new_message: Callable[[], TimelineMessage[Post]]) -> None:
        self._workload = workload
        self._receivers = workload.receivers
        self._new_message = new_message

    async def check(self, user: int, since: int) -> int:
        """Read a timeline with its own message."""
        message = self._new_message()
        message.check(user, since)
        return (await message.send()).row_count

    async def post(self, poster: int, tick: int, text: bytes) -> Awaitable[None]:
        """Write a post and read the poster's followers; the task that comes back puts it into their timelines."""
        message = self._new_message()
        published = message.publish(poster, tick, text)
        (followers,) = (await message.send()).followers

        async def deliver() -> None:
            message = self._new_message()
            message.deliver(self._receivers.intersection(followers), published)
            if message.command_count:
                await message.send()

        return asyncio.create_task(deliver())

    async def run(self) -> Work:
        """Carry out all operations; ``WINDOW`` messages of ``BATCH`` operations are under way at once.

        Every message is carried out in the order of its sending, a subscription is written before posts are read and a
        post before followers are. So each post reaches each follower, whichever comes first.
        """
        stream = self._workload.stream
        receivers = self._receivers
        under_way: deque[_Sent[Post]] = deque()
        row_count = command_count = message_count = 0

        async def settle(message: TimelineMessage[Post]) -> None:
            """Wait for the oldest message, and write what its answers ask for."""
            nonlocal row_count
            sent = under_way.popleft()
            answers = await sent.answers
            row_count += answers.row_count
            for user, posts in zip(sent.followers, answers.posts, strict=True):
                if posts and user in receivers:
                    message.copy(user, posts)
            for post, followers in zip(sent.published, answers.followers, strict=True):
                message.deliver(receivers.intersection(followers), post)

        def send(message: TimelineMessage[Post], followers: list[int], published: list[Post]) -> None:
            nonlocal command_count, message_count
            if message.command_count:
                command_count += message.command_count
                message_count += 1
                under_way.append(_Sent(message.send(), followers, published))

        kinds, users, details = stream.kinds.tolist(), stream.users.tolist(), stream.details.tolist()
        for start in range(0, len(kinds), BATCH):
            message = self._new_message()
            if len(under_way) >= WINDOW:
                await settle(message)
            followers: list[int] = []
            published: list[Post] = []
            for row in range(start, min(start + BATCH, len(kinds))):
                kind, user = kinds[row], users[row]
                if kind == CHECK:
                    message.check(user, details[row])
                elif kind == SUBSCRIBE:
                    message.follow(user, details[row])
                    followers.append(user)
                elif kind != LOGOUT:
                    tick = stream.first_tick + row
                    published.append(message.publish(user, tick, tweet(tick, self._workload.tweet_bytes)))
            send(message, followers, published)
        while under_way:
            message = self._new_message()
            await settle(message)
            send(message, [], [])
        return Work(row_count, command_count, message_count)
