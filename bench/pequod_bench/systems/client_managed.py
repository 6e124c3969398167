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
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pequod_workloads.twip import tweet

from pequod_bench.systems.system import SystemWorkload, Work, in_messages
from pequod_bench.workloads.stream import CHECK, LOGOUT, SUBSCRIBE

#: A post as the store keeps it in a timeline.
Post = TypeVar("Post")
#: What a reply answers: a check; a subscription that was written, or looked up before; a poster's posts; a poster's
#: followers; another write, as most do.
Kind = Literal["checked", "subscribed", "posts", "followers", "written"]


@dataclass(frozen=True, slots=True)
class Answers(Generic[Post]):
    """What came back for a message."""

    #: Rows of all checks.
    row_count: int
    #: For each follow, the posts to copy; none if the subscription was there already.
    posts: list[Sequence[Post]]
    #: For each publish, the poster's followers.
    followers: list[list[int]]


class TimelineMessage(ABC, Generic[Post]):
    """Commands that go out together, carried out in their order; stores say how they are written and read."""

    def __init__(self) -> None:
        #: What each reply answers, in their order.
        self.kinds: list[Kind] = []

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def check(self, user: int, since: int) -> None:
        """Read a timeline from a tick on."""

    @abstractmethod
    def follow(self, user: int, poster: int) -> None:
        """Write a subscription, then read what the poster wrote so far."""

    @abstractmethod
    def publish(self, poster: int, tick: int, text: bytes) -> Post:
        """Write a post, then read who follows the poster; return it as timelines hold it."""

    @abstractmethod
    def deliver(self, users: Collection[int], post: Post) -> None:
        """Append a post to timelines."""

    @abstractmethod
    def copy(self, user: int, posts: Sequence[Post]) -> None:
        """Put earlier posts into a timeline."""

    @abstractmethod
    def replies(self) -> Awaitable[Sequence[Any]]:
        """Send it at once; the replies come later."""

    @abstractmethod
    def rows(self, reply: Any) -> int:
        """Return the number of rows of a check."""

    @abstractmethod
    def is_new(self, reply: Any) -> bool:
        """Return whether a subscription was not there before."""

    @abstractmethod
    def posts(self, reply: Any) -> Sequence[Post]:
        """Return what a poster wrote."""

    @abstractmethod
    def followers(self, reply: Any) -> list[int]:
        """Return who follows a poster."""

    def send(self) -> Awaitable[Answers[Post]]:
        """Send it at once; what comes back makes something of the replies."""
        return self._answers(self.replies())

    async def _answers(self, coming: Awaitable[Sequence[Any]]) -> Answers[Post]:
        row_count, is_new = 0, False
        posts: list[Sequence[Post]] = []
        followers: list[list[int]] = []
        rows = self.rows
        for kind, reply in zip(self.kinds, await coming, strict=True):
            if kind == "written":
                continue
            if kind == "checked":
                row_count += rows(reply)
            elif kind == "subscribed":
                is_new = self.is_new(reply)
            elif kind == "posts":
                posts.append(self.posts(reply) if is_new else [])
            else:
                followers.append(self.followers(reply))
        return Answers(row_count, posts, followers)


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
            if len(message):
                await message.send()

        return asyncio.create_task(deliver())

    async def run(self) -> Work:
        """Carry out all operations.

        Every message is carried out in the order of its sending, a subscription is written before posts are read and a
        post before followers are. So each post reaches each follower, whichever comes first.
        """
        stream, tweet_bytes, receivers = self._workload.stream, self._workload.tweet_bytes, self._receivers

        def settle(message: TimelineMessage[Post], answers: Answers[Post], asked: tuple[list[int], list[Post]]) -> int:
            followers, published = asked
            for user, posts in zip(followers, answers.posts, strict=True):
                if posts and user in receivers:
                    message.copy(user, posts)
            for post, users in zip(published, answers.followers, strict=True):
                message.deliver(receivers.intersection(users), post)
            return answers.row_count

        def fill(message: TimelineMessage[Post], start: int, stop: int) -> tuple[list[int], list[Post]]:
            followers: list[int] = []
            published: list[Post] = []
            for tick, (kind, user, detail) in enumerate(stream.operations(start, stop), stream.first_tick + start):
                if kind == CHECK:
                    message.check(user, detail)
                elif kind == SUBSCRIBE:
                    message.follow(user, detail)
                    followers.append(user)
                elif kind != LOGOUT:
                    published.append(message.publish(user, tick, tweet(tick, tweet_bytes)))
            return followers, published

        return await in_messages(self._new_message, fill, settle, stream.tick_count)
