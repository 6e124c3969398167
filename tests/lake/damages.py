"""Faults that are planted in a lake: in files, in the catalog, and in both so that they agree with each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pequod_lake import IngestLimits, Lake, MergePolicy, StageLimits
from pequod_lake.database import Session
from pequod_lake.runs import LakeFile, Stage
from pequod_lake.schema import ids_table
from pequod_lake.writing import write_file

SCHEMA: Final = """
[[id]]
name = "user"

[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "id:user", body = "text" }
views.by_author = ["author", "id"]
views.heads = { key = ["author", "id"], columns = ["id"] }

[[table]]
name = "timed"
key = ["id"]
columns = { id = "int64", at = "int64" }
timestamp = "at"
"""
_NOW: Final = IngestLimits(scu_age_s=0)
_LIMITS: Final = StageLimits(range_rows=30, whole_ratio=9.0)
_USERS: Final = ["ann", "bob", "cy", "dé"]


def fill(lake: Lake) -> None:
    """Bring rows into all stages: an authority of several ranges with its past, a delta, a sorted run, a raw SCU."""
    worker = lake.worker(MergePolicy(authority_after_s=0.0, delta_ratio=0.1), _LIMITS)
    _put(lake, range(100), "old")
    worker.drain()
    worker.compact()
    _put(lake, range(20, 24), "newer")
    worker.compact()
    _put(lake, [1, 50], "newest")
    worker.drain()
    slow = lake.worker(MergePolicy(authority_after_s=1e9), _LIMITS)
    _put(lake, [2, 3, 70, 200], "sorted")
    while slow.step() is not None:
        pass
    _put(lake, [4], "raw")
    worker.close()
    slow.close()
    stages = [run.stage for run in lake.catalog.snapshot().runs]
    assert stages == [Stage.AUTHORITY, Stage.DELTA, Stage.SORTED, Stage.RAW], stages


def _put(lake: Lake, numbers: Sequence[int], body: str) -> None:
    with lake.ingestor(_NOW) as ingestor:
        upload = ingestor.upload(f"{body} {numbers[0]}")
        rows = [{"id": one, "author": _USERS[one % 4], "body": f"{body} {one}"} for one in numbers]
        upload.put("posts", pa.Table.from_pylist(rows))
        upload.put("timed", {"id": [numbers[0]], "at": [numbers[-1]]})
        if body == "newest":
            upload.delete("posts", {"id": [60]})
        ingestor.take(upload)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A lake that is to be damaged."""

    lake: Lake

    def files(self, stage: Stage, table: str = "posts", view: str = "") -> tuple[LakeFile, ...]:
        (run,) = [one for one in self.lake.catalog.snapshot().runs if one.stage is stage]
        return run.of(table, view)

    def db(self, statement: str, *parameters: object) -> None:
        with self.lake.place.database.writing() as db:
            db.execute(statement, parameters)

    def flip(self, file: LakeFile, place: int) -> None:
        path = self.lake.folder / file.path
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)

    def rewrite(self, file: LakeFile, change: Callable[[Any], Any], *, told: bool = False) -> None:
        """Write a file anew with other rows; the catalog has its size and checksums, and, if ``told``, what it says."""
        table = ids_table("user") if file.table == "ids_user" else self.lake.schema.table(file.table)
        view = table.view(file.view)
        rows = change(self.lake.reader.read(file, table.stored(view).names))
        (self.lake.folder / file.path).unlink()
        new = write_file(self.lake.place.files, file.path, table, view, [rows], raw=False)
        assert new is not None
        with self.lake.place.database.writing() as db:
            _tell(db, new, new.content if told else file.content)


def _tell(db: Session, file: LakeFile, content: str) -> None:
    db.execute(
        "UPDATE lake_part SET row_count = ?, size_bytes = ?, crc = ?, footer_crc = ?, footer_bytes = ?, first_key = ?, "
        "last_key = ?, content = ? WHERE path = ?",
        (
            file.row_count,
            file.size_bytes,
            file.crc,
            file.footer_crc,
            file.footer_bytes,
            file.first_key,
            file.last_key,
            content,
            file.path,
        ),
    )
    db.execute(
        "UPDATE ducklake_data_file SET record_count = ?, file_size_bytes = ? WHERE path = ?",
        (file.row_count, file.size_bytes, file.path.rpartition("/")[2]),
    )


def _with(rows: Any, name: str, place: int, value: Any) -> Any:
    values = rows[name].to_pylist()
    values[place] = value
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


def _without(rows: Any, place: int) -> Any:
    return pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)])


def _doubled(rows: Any, place: int) -> Any:
    return pa.concat_tables([rows.slice(0, place + 1), rows.slice(place)])


def _exchanged(rows: Any) -> Any:
    ids = rows["id"].to_pylist()
    ids[0], ids[1] = ids[1], ids[0]
    return rows.set_column(rows.schema.get_field_index("id"), rows.schema.field("id"), pa.array(ids))


Plant = Callable[[Damaged], object]


def _swap(one: Damaged) -> None:
    first, second = (one.lake.folder / file.path for file in one.files(Stage.AUTHORITY)[:2])
    middle = first.with_suffix(".tmp")
    first.rename(middle)
    second.rename(first)
    middle.rename(second)


def _old_file(one: Damaged) -> None:
    """A range is as it was before a merge, in the file and in the catalog's row."""
    lake = one.lake
    past = lake.snapshot_at(scu=1)
    old = {file.first_key: file for run in past.runs for file in run.of("posts")}
    file = next(one for one in one.files(Stage.AUTHORITY) if one.first_key in old and old[one.first_key] != one)
    before = old[file.first_key]
    past.close()
    shutil.copyfile(lake.folder / before.path, lake.folder / file.path)
    with lake.place.database.writing() as db:
        _tell(db, LakeFile(file.path, *(getattr(before, name) for name in LakeFile.__slots__[1:])), before.content)


def _exchange_ids(one: Damaged, *, told: bool) -> None:
    for view in ("", "by_id"):
        (file,) = one.files(Stage.AUTHORITY, "ids_user", view)
        one.rewrite(file, _exchanged if not view else _keys_exchanged, told=told)


def _keys_exchanged(rows: Any) -> Any:
    keys = rows["key"].to_pylist()
    keys[0], keys[1] = keys[1], keys[0]
    return rows.set_column(rows.schema.get_field_index("key"), rows.schema.field("key"), pa.array(keys))


def _drop_id(one: Damaged) -> None:
    for view in ("", "by_id"):
        (file,) = one.files(Stage.AUTHORITY, "ids_user", view)
        one.rewrite(
            file, lambda rows: rows.filter(pa.array([key != "ann" for key in rows["key"].to_pylist()])), told=True
        )
    one.db(
        "UPDATE lake_run SET contents = NULL, row_count = row_count - 1 "
        "WHERE stage = 'authority' AND end_number IS NULL"
    )


def _authority(one: Damaged, place: int = 1, view: str = "") -> LakeFile:
    return one.files(Stage.AUTHORITY, view=view)[place]


def _delta(one: Damaged, view: str = "") -> LakeFile:
    return one.files(Stage.DELTA, view=view)[0]


_CURRENT: Final = "end_number IS NULL"
#: Faults by name: in files alone; rows in files and their rows of the catalog; the catalog alone.
FAULTS: Final[dict[str, Plant]] = {
    "a byte of a page": lambda one: one.flip(_authority(one), 60),
    "a byte of a page header": lambda one: one.flip(_authority(one), 5),
    "a byte of a footer": lambda one: one.flip(_authority(one), -20),
    "a byte of a delta": lambda one: one.flip(_delta(one), 60),
    "a byte of an SCU": lambda one: one.flip(one.files(Stage.RAW)[0], 60),
    "a file that is cut short": lambda one: (path := one.lake.folder / _authority(one).path).write_bytes(
        path.read_bytes()[:-9]
    ),
    "a file that is gone": lambda one: (one.lake.folder / _authority(one).path).unlink(),
    "two files that changed places": _swap,
    "a file of an older state": lambda one: shutil.copyfile(
        one.lake.folder / _authority(one, 0).path, one.lake.folder / _authority(one, 1).path
    ),
    "an older state, in the catalog too": _old_file,
    "another value, with its checksums": lambda one: one.rewrite(
        _authority(one), lambda rows: _with(rows, "body", 2, "forged")
    ),
    "another value, in the catalog too": lambda one: one.rewrite(
        _authority(one), lambda rows: _with(rows, "body", 2, "forged"), told=True
    ),
    "another value in a view": lambda one: one.rewrite(
        _authority(one, view="by_author"), lambda rows: _with(rows, "body", 2, "forged"), told=True
    ),
    "a row that a view lost": lambda one: one.rewrite(
        _authority(one, view="heads"), lambda rows: _without(rows, 2), told=True
    ),
    "a row that a view has twice": lambda one: one.rewrite(
        _authority(one, view="heads"), lambda rows: _doubled(rows, 2), told=True
    ),
    "a row that the table lost": lambda one: one.rewrite(_authority(one), lambda rows: _without(rows, 2), told=True),
    "a delete marker that a delta lost": lambda one: one.rewrite(
        _delta(one), lambda rows: rows.filter(pa.compute.invert(rows["_deleted"])), told=True
    ),
    "another moment of a row": lambda one: one.rewrite(
        one.files(Stage.AUTHORITY, "timed")[0], lambda rows: _with(rows, "_ts", 0, 5), told=True
    ),
    "two ids that changed places": lambda one: _exchange_ids(one, told=False),
    "two ids that changed places, in the catalog too": lambda one: _exchange_ids(one, told=True),
    "an id that two texts have": lambda one: one.rewrite(
        one.files(Stage.AUTHORITY, "ids_user")[0], lambda rows: _with(rows, "id", 0, rows["id"][1].as_py()), told=True
    ),
    "an id that is gone, unsummed": _drop_id,
    "ids that are given again": lambda one: one.db("UPDATE lake_meta SET value = 1 WHERE name = 'next id of user'"),
    "a file that the catalog lost": lambda one: one.db("DELETE FROM lake_part WHERE path = ?", _authority(one).path),
    "a file that the catalog has twice": lambda one: one.db(
        "INSERT INTO lake_part (run, path, table_name, view_name, row_count, size_bytes, crc, footer_crc, "
        "footer_bytes, first_key, last_key, content, begin_number, end_number) "
        "SELECT run, path, table_name, view_name, row_count, "
        "size_bytes, crc, footer_crc, footer_bytes, first_key, last_key, content, begin_number, end_number "
        "FROM lake_part WHERE path = ?",
        _authority(one).path,
    ),
    "a file of another table": lambda one: one.db(
        "UPDATE lake_part SET view_name = 'heads' WHERE path = ?", _authority(one, view="by_author").path
    ),
    "a range with another bound": lambda one: one.db(
        "UPDATE lake_part SET last_key = '[57]' WHERE path = ?", _authority(one).path
    ),
    "a range that overlaps the next": lambda one: one.db(
        "UPDATE lake_part SET last_key = '[65]' WHERE path = ?", _authority(one).path
    ),
    "a delta that is lost": lambda one: one.db(f"DELETE FROM lake_run WHERE stage = 'delta' AND {_CURRENT}"),
    "a delta that ended": lambda one: one.db(
        f"UPDATE lake_run SET end_number = begin_number + 1 WHERE stage = 'delta' AND {_CURRENT}"
    ),
    "a delta behind its time": lambda one: one.db(
        f"UPDATE lake_run SET first_scu = first_scu - 1 WHERE stage = 'delta' AND {_CURRENT}"
    ),
    "an SCU that two runs have": lambda one: one.db(
        "INSERT INTO lake_run (run, first_scu, last_scu, stage, level, row_count, begin_number) "
        "SELECT run + 500, first_scu, last_scu, stage, level, 0, begin_number FROM lake_run "
        f"WHERE stage = 'raw' AND {_CURRENT}"
    ),
    "an SCU without a moment": lambda one: one.db("DELETE FROM lake_scu WHERE scu = 2"),
    "another number of rows of a run": lambda one: one.db(
        f"UPDATE lake_run SET row_count = row_count + 1 WHERE stage = 'sorted' AND {_CURRENT}"
    ),
    "an upload of an SCU to come": lambda one: one.db("UPDATE lake_upload SET scu = 99 WHERE scu = 2"),
    "a row of DuckLake's that is gone": lambda one: one.db(
        "DELETE FROM ducklake_data_file WHERE path = ?", _authority(one).path.rpartition("/")[2]
    ),
    "a row of DuckLake's that has another size": lambda one: one.db(
        "UPDATE ducklake_data_file SET record_count = 3 WHERE path = ?", _authority(one).path.rpartition("/")[2]
    ),
    "a file that nobody names": lambda one: shutil.copyfile(
        path := one.lake.folder / _authority(one).path, path.with_name("sort-0123456789ab-0.parquet")
    ),
}
#: Faults of which no other place knows what was there before.
LEFT: Final = frozenset(
    {
        "a byte of an SCU",
        "two ids that changed places",
        "two ids that changed places, in the catalog too",
        "an id that is gone, unsummed",
        "a delta that is lost",
        "a delta that ended",
        "a delta behind its time",
        "an SCU that two runs have",
        "an SCU without a moment",
        "an upload of an SCU to come",
    }
)
#: Faults of which a repair says no more than that the lake cannot be opened as it is.
CLOSED: Final = frozenset(
    {"a delta that is lost", "a delta that ended", "a delta behind its time", "an SCU that two runs have"}
)


def told(lake: Lake) -> Iterator[str]:
    """Yield what `pequod lake verify` says of a lake."""
    yield from lake.verify()
    yield from (f"{path}: no catalog row names it" for path in lake.catalog.orphans())
