"""Records of the engine as messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import NamedTuple

from pequod_installed.names import version
from pequod_proto import pequod_pb2 as pb

from pequod.calls import BackingStatistics, PeerStatistics
from pequod.engine import JoinExplanation, JoinInfo, Note, RangeExplanation, Statistics


def join(info: JoinInfo) -> pb.Join:
    """Encode an installed join."""
    spec = info.spec
    return pb.Join(
        name=info.name,
        text=str(spec),
        warnings=info.warnings,
        notes=_notes(info.notes),
        table=spec.output.table,
        source_tables=[source.pattern.table for source in spec.sources],
        maintenance=str(spec.maintenance),
    )


def _notes(notes: Iterable[Note]) -> list[pb.Note]:
    return [pb.Note(text=note.text, first=note.first, last=note.last) for note in notes]


def join_explanation(explained: JoinExplanation) -> pb.JoinExplanation:
    """Encode a join's plan."""
    return pb.JoinExplanation(
        name=explained.name,
        text=explained.text,
        maintenance=explained.maintenance,
        is_unique=explained.is_unique,
        warnings=explained.warnings,
        notes=_notes(explained.notes),
        sources=[
            pb.SourceExplanation(
                source=source.source,
                reads=source.reads,
                narrowed_by=source.narrowed_by or "",
                binds=source.binds,
                upkeep=source.upkeep,
                computed_by=source.computed_by,
                index=None if source.index is None else pb.IndexExplanation(**asdict(source.index)),
                misfits=[pb.MisfitExplanation(**asdict(misfit)) for misfit in source.misfits],
            )
            for source in explained.sources
        ],
    )


def range_explanation(explained: RangeExplanation, freshness: str) -> pb.RangeExplanation:
    """Encode what a read would find, and how fresh that is, in words."""
    return pb.RangeExplanation(
        freshness=freshness,
        notes=_notes(explained.notes),
        stored_keys=explained.stored_keys,
        joins=[pb.CoverageExplanation(**asdict(coverage)) for coverage in explained.joins],
        dropped=[pb.DroppedExplanation(**asdict(one)) for one in explained.dropped],
    )


class PeersFollowing(NamedTuple):
    """The computes that follow a server's base data."""

    peers: Sequence[PeerStatistics] = ()
    subscription_bounds: int = 0


def statistics(
    collected: Statistics, header: pb.Header, databases: Sequence[BackingStatistics], following: PeersFollowing
) -> pb.StatsReply:
    """Encode the statistics of an engine, of the databases behind it and of the computes before it."""
    return pb.StatsReply(
        header=header,
        version=version(),
        loose_keys=collected.loose_keys,
        expiring_keys=collected.expiring_keys,
        expired_keys=collected.expired_keys,
        tables=[pb.TableStatistics(table=name, **asdict(table)) for name, table in collected.tables.items()],
        joins=[pb.JoinStatistics(join=name, **asdict(kept)) for name, kept in collected.joins.items()],
        databases=[pb.BackingStatistics(**asdict(one)) for one in databases],
        memory=pb.MemoryStatistics(**asdict(collected.memory)),
        peers=[pb.PeerStatistics(**asdict(one)) for one in following.peers],
        subscription_bounds=following.subscription_bounds,
    )
