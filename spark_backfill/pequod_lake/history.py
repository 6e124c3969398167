"""SCUs as they were committed: the rows that uploads brought, before stages made them one with others.

They are kept as long as the catalog keeps a snapshot in which they are raw; `pequod lake expire --keep` says how long.
"""

from __future__ import annotations

from dataclasses import dataclass

from pequod_lake.ducklake import DuckLakeCatalog
from pequod_lake.errors import LakeError
from pequod_lake.runs import LakeFile, Stage


class ScuGoneError(LakeError):
    """The files of an SCU as it was committed are not kept any more."""

    def __init__(self, scu: int) -> None:
        super().__init__(
            f"the rows of SCU {scu} as they came are not kept any more; expire with a longer `--keep`, or begin anew "
            "with the state of the table"
        )
        self.scu = scu


@dataclass(frozen=True, slots=True)
class CommittedScu:
    """An SCU as it was committed."""

    scu: int
    #: A snapshot in which it is raw.
    number: int
    #: Its files, in the order of its rows.
    files: tuple[LakeFile, ...]

    def row_count(self, table: str) -> int:
        """The number of its rows of a table."""
        return sum(file.row_count for file in self.files if file.table == table)


def newest_scu(catalog: DuckLakeCatalog) -> int:
    """Return the newest SCU."""
    return int(catalog.database.connection.execute("SELECT max(scu) FROM lake_scu").fetchone()[0])


def committed_scus(catalog: DuckLakeCatalog, after: int, last: int) -> list[CommittedScu]:
    """Return the SCUs after one up to another, in their order.

    Raises:
        ScuGoneError: One is not kept.
    """
    with catalog.database.reading() as db:
        (floor,) = db.execute("SELECT value FROM lake_meta WHERE name = 'floor'").fetchone()
        numbers = dict(db.execute(_NUMBERS, (Stage.RAW.value, after, last, int(floor))).fetchall())
        files: dict[int, list[LakeFile]] = {}
        for scu, *facts in db.execute(_FILES, (Stage.RAW.value, after, last)):
            files.setdefault(scu, []).append(LakeFile(*facts))
    for scu in range(after + 1, last + 1):
        if scu not in numbers:
            raise ScuGoneError(scu)
    return [CommittedScu(scu, numbers[scu], tuple(files.get(scu, ()))) for scu in range(after + 1, last + 1)]


_NUMBERS = """
SELECT first_scu, begin_number FROM lake_run
WHERE stage = ? AND first_scu > ? AND first_scu <= ? AND (end_number IS NULL OR end_number > ?)
"""
_FILES = """
SELECT first_scu, path, table_name, view_name, part.row_count, size_bytes, crc, footer_crc, footer_bytes
FROM lake_part AS part JOIN lake_run USING (run)
WHERE stage = ? AND first_scu > ? AND first_scu <= ? ORDER BY first_scu, file
"""
