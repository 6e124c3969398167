r"""The public keys of an issuer of tokens, a JSON Web Key Set: in a file, or at a URL, from which they are read anew.

first use   refresh_s have passed   a token names an unknown key   SIGHUP
     \____________|______________________|____________________/
                    read -> other keys -> changed()
                        -> a set without keys: all are withdrawn, and the log says so
                        -> an error: the keys before stay in use, and the log says so
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pequod.machine import stamp_of
from pequod_server.access.allowances import Allowance

if TYPE_CHECKING:
    from joserfc.jwk import Key

log = logging.getLogger("pequod.server")

#: How long an issuer may take to send its keys, and how long they may be.
FETCH_S: Final = 5.0
_BYTES_MAX: Final = 1 << 20
#: Fetches for keys that are not known: some at once, and one for each of these seconds.
_SEEKS: Final = 3
_SEEK_PAUSE_S: Final = 10.0
#: Keys that nobody but their owner has: they would let everybody who checks tokens make some.
_SHARED: Final = "oct"

#: Keys by their ids.
Keys = Mapping[str | None, "Key"]


#: A set that withdraws all keys, or a file at the start whose keys this server cannot use.
_NO_KEYS: Final = "it has no public key for signatures"


def members_of(text: str | bytes) -> list[Any]:
    """Return what a set lists.

    Raises:
        ValueError: It is no set.
    """
    members = json.loads(text)
    listed = members.get("keys") if isinstance(members, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is no JSON Web Key Set: an object with the list `keys`")  # noqa: TRY004 - one kind for all
    return listed


def keys_of(members: list[Any]) -> Keys:
    """Return the keys of a set that are for signatures and that this server can use."""
    from joserfc.errors import JoseError  # noqa: PLC0415 - only some servers check such tokens
    from joserfc.jwk import JWKRegistry  # noqa: PLC0415

    found: dict[str | None, Key] = {}
    for one in members:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig" or one.get("kty") == _SHARED:
            continue
        # A key of a kind that this library does not know is left out.
        with suppress(JoseError, ValueError, TypeError, KeyError):
            found.setdefault(one.get("kid"), JWKRegistry.import_key(one))
    return found


class KeySource:
    """The keys of one issuer, as they were read last.

    Args:
        place: Where they are, for messages.
        changed: Called when they are others than before.
    """

    def __init__(self, place: str, changed: Callable[[], None]) -> None:
        self.place = place
        #: The fault of the last reading; empty: it had none.
        self.fault = ""
        self._changed = changed
        self._keys: Keys = {}
        self._text: bytes | None = None

    def find(self, name: str | None) -> Key | None:
        """Return the key of an id; without one, the only key."""
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name)

    @property
    def are_none(self) -> bool:
        """Whether there are no keys."""
        return not self._keys

    @abstractmethod
    def look(self) -> None:
        """Read anew what is due; called once a second at the most."""

    @abstractmethod
    def renew(self) -> None:
        """Read anew."""

    @abstractmethod
    async def seek(self) -> None:
        """Read anew for a key that is not known, unless that was done a moment ago."""

    async def start(self) -> None:
        """Read for the first time what is not read yet."""

    def drop(self) -> asyncio.Task[None] | None:
        """Let go; return what ends."""

    def _take(self, text: bytes) -> None:
        """Take keys that were read; a set without keys withdraws all.

        Raises:
            ValueError: It is no set.
        """
        if text != self._text:
            self._keys = keys_of(members_of(text))
            self._text = text
            self._warn_of_none()
            self._changed()
        if self.fault:
            log.info("the keys of %s: read again", self.place)
        self.fault = ""

    def _warn_of_none(self) -> None:
        if self.are_none:
            log.warning("the keys of %s: %s: all keys are withdrawn, and its tokens are refused", self.place, _NO_KEYS)

    def _fail(self, reason: str) -> None:
        if reason != self.fault:
            kept = "those read before stay in use" if self._keys else "its tokens are refused"
            log.warning("the keys of %s: %s; %s", self.place, reason, kept)
        self.fault = reason


class KeyFile(KeySource):
    """Keys in a file, which is read again when it changes."""

    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        """Read the file.

        Raises:
            OSError: It cannot be read.
            ValueError: It is no set, or none of what it lists is a key that can be used.
        """
        super().__init__(str(path), changed)
        self._path = path
        self._stamp = stamp_of(path)
        self._text = path.read_bytes()
        members = members_of(self._text)
        self._keys = keys_of(members)
        if members and self.are_none:
            raise ValueError(_NO_KEYS)
        # An empty set is meant: after an emergency, the server has to start for other tokens.
        self._warn_of_none()

    def look(self) -> None:
        """Read the file if it has changed."""
        stamp = stamp_of(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            self.renew()

    def renew(self) -> None:
        """Read the file."""
        try:
            self._take(self._path.read_bytes())
        except (OSError, ValueError) as error:
            self._fail(str(error))

    async def seek(self) -> None:
        """Read the file if it has changed."""
        self.look()


class KeyUrl(KeySource):
    """Keys at a URL, which are fetched beside the calls."""

    def __init__(
        self,
        url: str,
        ca: Path | None,
        refresh_s: float,
        changed: Callable[[], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Note where the keys are.

        Raises:
            OSError: The authority cannot be read.
        """
        super().__init__(url, changed)
        self._url = url
        self._tls = None if ca is None else ssl.create_default_context(cafile=ca)
        self._refresh_s = refresh_s
        self._clock = clock
        self._seeks = Allowance(1 / _SEEK_PAUSE_S, most=_SEEKS, now_s=clock())
        self._fetching: asyncio.Task[None] | None = None
        self._due_s = clock()

    async def start(self) -> None:
        """Fetch them, if that was not done."""
        if self._text is None:
            await self._fetched()

    def look(self) -> None:
        """Begin to fetch them if they are old."""
        if self._clock() >= self._due_s:
            self.renew()

    def renew(self) -> None:
        """Begin to fetch them, unless that is under way."""
        if self._fetching is None or self._fetching.done():
            self._due_s = self._clock() + self._refresh_s
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(), name=f"pequod keys of {self._url}")

    async def seek(self) -> None:
        """Fetch them; all who wait share it."""
        is_under_way = self._fetching is not None and not self._fetching.done()
        if is_under_way or not self._seeks.take(1, self._clock()):
            await self._fetched()

    def drop(self) -> asyncio.Task[None] | None:
        """Stop fetching."""
        if self._fetching is not None:
            self._fetching.cancel()
        return self._fetching

    async def _fetched(self) -> None:
        self.renew()
        assert self._fetching is not None, "it has begun"
        # A call that is cancelled takes none of the others with it.
        await asyncio.shield(self._fetching)

    async def _fetch(self) -> None:
        from aiohttp import ClientError  # noqa: PLC0415 - only some servers fetch something

        try:
            self._take(await self._read())
        except (ClientError, OSError, ValueError) as error:
            self._fail(str(error) or type(error).__name__)

    async def _read(self) -> bytes:
        from aiohttp import ClientSession, ClientTimeout  # noqa: PLC0415 - as said

        options: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls}
        async with (
            ClientSession(timeout=ClientTimeout(total=FETCH_S)) as session,
            session.get(self._url, allow_redirects=False, **options) as reply,
        ):
            if reply.status != 200:
                raise ValueError(f"the answer is {reply.status}")
            text = bytearray()
            async for part in reply.content.iter_chunked(1 << 16):
                text += part
                if len(text) > _BYTES_MAX:
                    raise ValueError(f"the answer is longer than {_BYTES_MAX} bytes")
            return bytes(text)
