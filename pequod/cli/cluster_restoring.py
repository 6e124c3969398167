"""What `cluster map restore` finds: the file's map beside the coordinator's, and what servers go by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pequod.cli.cluster_asking import maps_of
from pequod.cli.text import escaped

if TYPE_CHECKING:
    from pequod_server.cluster.operating import ClusterEditor

    from pequod.cluster.map import ClusterMap, ClusterState
    from pequod.cluster.servers import ServerEntry

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server says of the map that it goes by."""

    server: ServerEntry
    #: Without its joins; None without an answer.
    map: ClusterMap | None
    #: Whether the coordinator knows the server; else the file alone names it.
    is_registered: bool


@dataclass(frozen=True, slots=True)
class Restoration:
    """All that decides whether a map is put back."""

    place: str
    kept: ClusterMap
    #: The coordinator's; None: it has none, or none that is right.
    present: ClusterMap | None
    #: The servers of the file and those that the coordinator knows.
    answers: tuple[Answer, ...]
    #: Whether the coordinator is a file; then no server is asked.
    is_file: bool = False

    @property
    def latest_version(self) -> int:
        """The greatest version that the coordinator or a server has; 0 without any."""
        present = 0 if self.present is None else self.present.version
        return max((present, *self._versions()))

    @property
    def changed(self) -> ClusterMap:
        """The map that is put there: the file's, as the version after the latest one.

        Raises:
            ClusterMapError: That is beyond the greatest version.
        """
        newest = replace(self.kept, version=max(self.latest_version, self.kept.version))
        return replace(newest, version=newest.version_after)

    @property
    def _clusters(self) -> list[str]:
        """The names of the cluster that is there: in the coordinator's map, or else in those that its servers go by.

        Empty: nobody says one.
        """
        if self.present is not None:
            return [self.present.cluster]
        return sorted({one.map.cluster for one in self.answers if one.is_registered and one.map is not None})

    def refusal(self, *, is_older_taken: bool, is_anyway: bool) -> str:
        """Return why the map is not put back, and what to do; empty: it is."""
        if (clusters := self._clusters) and self.kept.cluster not in clusters:
            return (
                f"{self.place}: the cluster there is {clusters[0]}, and the file has the map of {self.kept.cluster}, "
                f"with other joins and ranges; take a file of {clusters[0]}, or the place of {self.kept.cluster}. If "
                f'this very map has to be there, write cluster = "{clusters[0]}" into the file'
            )
        latest = self.latest_version
        if latest > self.kept.version and not is_older_taken:
            ids = self._ids_of(latest)
            who = (
                f"servers go by version {latest} of the map ({ids})" if ids else f"there is version {latest} of the map"
            )
            return (
                f"{self.place}: {who}, and the file has version {self.kept.version}, without what was changed since; "
                "save the latest one from a server by `pequod cluster map save`, or give --older"
            )
        silent = [] if is_anyway or self.is_file else [*self._silent_homes(), *self._groups_without_homes()]
        if not silent:
            return ""
        shown = ", ".join(silent[:_SHOWN]) + (" and more" if len(silent) > _SHOWN else "")
        return (
            f"{self.place}: these do not say which map they go by: {shown}; start them or wait for them, or give "
            "--anyway if they are gone for good, or do not start without this map"
        )

    def lines(self) -> Iterator[str]:
        """Yield what would be changed."""
        present = self.present
        there = "there is no map" if present is None else f"version {present.version} of the map is there"
        yield f"{self.place}: {there}"
        yield f"the file: version {self.kept.version}"
        for version in sorted(set(self._versions()), reverse=True):
            yield f"servers that go by version {version}: {self._ids_of(version)}"
        for answer in self.answers:
            if answer.map is None:
                yield f"{answer.server.id} at {answer.server.address} does not answer"
        changed = self.changed
        yield f"version {changed.version} would be there:"
        before, after = [] if present is None else list(_parts(present)), list(_parts(changed))
        gone, come = [one for one in before if one not in after], [one for one in after if one not in before]
        yield from (f"  - {one}" for one in gone)
        yield from (f"  + {one}" for one in come)
        if not (gone or come):
            yield "  the same, but for the version"

    def _versions(self) -> list[int]:
        return [version for one in self.answers if (version := _version_of(one))]

    def _ids_of(self, version: int) -> str:
        ids = [one.server.id for one in self.answers if _version_of(one) == version]
        return ", ".join(ids[:_SHOWN]) + (" and more" if len(ids) > _SHOWN else "")

    def _silent_homes(self) -> list[str]:
        """Return homes that do not answer, but for those of the file alone whose groups others speak for."""
        spoken_for = {one.server.group for one in self.answers if one.map is not None}
        return [
            f"{one.server.id} at {one.server.address}"
            for one in self.answers
            if one.server.group and one.map is None and (one.is_registered or one.server.group not in spoken_for)
        ]

    def _groups_without_homes(self) -> list[str]:
        groups = {home.group for home in self.kept.home_ranges}
        known = {one.server.group for one in self.answers}
        return [f"group {group}, of which no home is known" for group in sorted(groups - known)]


async def look(editor: ClusterEditor, kept: ClusterState) -> Restoration:
    """Ask the coordinator, the servers that it knows and those of a file.

    Raises:
        CoordinatorUnavailableError: The coordinator does not answer.
        ClusterMapError: The coordinator is a file that cannot be read.
    """
    remains = await editor.remains()
    if editor.file is not None:
        # Copies of files differ while an operator copies them; servers say nothing of that.
        return Restoration(editor.place, kept.map, remains.map, (), is_file=True)
    servers: dict[str, ServerEntry] = {one.id: replace(one, map_version=0) for one in kept.servers}
    servers |= {one.id: one for one in remains.servers}
    asked = [servers[name] for name in sorted(servers)]
    registered = {one.id for one in remains.servers}
    answers = [
        Answer(server, known, server.id in registered)
        for server, known in zip(asked, await maps_of(asked), strict=True)
    ]
    return Restoration(editor.place, kept.map, remains.map, tuple(answers))


def _version_of(answer: Answer) -> int:
    """Return the version that a server goes by, as it says or as the coordinator knows; 0: nobody knows."""
    return max(answer.server.map_version, 0 if answer.map is None else answer.map.version)


def _parts(known: ClusterMap) -> Iterator[str]:
    """Yield what a map says, a line for each part."""
    from pequod_server.cluster.joins import specs_of

    for spec in specs_of(known):
        yield f"join {spec}"
    for home in known.home_ranges:
        yield f"{home}: group {home.group}{f', moves to {home.moves_to}' if home.moves_to else ''}"
    for one in known.placements:
        yield f"placement {escaped(one.prefix)}: level {one.level}, read_spread {one.read_spread}"
