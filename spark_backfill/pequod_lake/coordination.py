"""Who does which step, and what uploads and ids have been given: Pequod's own tables in the catalog's database.

A lease only keeps two workers from doing the same work. If both do it all the same, because one was slow for longer
than its lease, `replace` of the catalog takes the first result and refuses the second. The lease of a worker that is
dead need not run out: its row is deleted, and with it its right to replace anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pequod_lake import fence
from pequod_lake.ducklake import DuckLakeCatalog, taken_uploads
from pequod_lake.runs import LakeStep

#: Uploads are recognised for so long.
UPLOADS_KEPT_S: Final = 7 * 86_400.0
#: The begin of the ids of uploads that are epochs of streams; the stream and the number of the epoch follow.
EPOCH: Final = "stream epoch "


def epoch_id(stream: str, epoch: int) -> str:
    """Return the id of the upload that is an epoch of a stream.

    >>> epoch_id("7f", 3)
    'stream epoch 7f 3'
    """
    return f"{EPOCH}{stream} {epoch}"


class Coordinator:
    """The coordinator of the workers: a table, so there may be any number of processes."""

    def __init__(self, catalog: DuckLakeCatalog) -> None:
        self._database = catalog.database
        self._locks = catalog.locks
        self._clock = catalog.now

    def claim(self, steps: Sequence[LakeStep], worker: str, lease_s: float) -> LakeStep | None:
        """Take the first step whose runs nobody has, for ``lease_s``; None if there is none."""
        if not steps:
            return None
        now = self._clock()
        with self._database.writing() as db:
            alive = fence.living(db, self._locks)
            for step in steps:
                marks = ", ".join("?" * len(step.ids))
                there = db.execute(
                    f"SELECT count(*) FROM lake_run WHERE end_number IS NULL AND run IN ({marks})",  # noqa: S608
                    step.ids,
                ).fetchone()[0]
                # A lease of an earlier start of the machine is of a worker that is gone.
                owners = db.execute(
                    f"SELECT worker FROM lake_lease WHERE run IN ({marks}) AND boot = ? AND until_s > ?",  # noqa: S608
                    (*step.ids, now.boot, now.elapsed_s),
                )
                is_taken = any(owner in alive for (owner,) in owners.fetchall())
                if there == len(step.ids) and not is_taken:
                    db.executemany(
                        "INSERT INTO lake_lease VALUES (?, ?, ?, ?) ON CONFLICT (run) DO UPDATE "
                        "SET worker = excluded.worker, boot = excluded.boot, until_s = excluded.until_s",
                        [(run, worker, now.boot, now.elapsed_s + lease_s) for run in step.ids],
                    )
                    return step
        return None

    def renew(self, step: LakeStep, worker: str, lease_s: float) -> None:
        """Keep a step for ``lease_s`` more."""
        now = self._clock()
        with self._database.writing() as db:
            db.executemany(
                "UPDATE lake_lease SET until_s = ? WHERE run = ? AND worker = ?",
                [(now.elapsed_s + lease_s, run, worker) for run in step.ids],
            )

    def release(self, step: LakeStep, worker: str) -> None:
        """Give a step back that was not done."""
        with self._database.writing() as db:
            db.executemany("DELETE FROM lake_lease WHERE run = ? AND worker = ?", [(run, worker) for run in step.ids])

    def leases(self) -> dict[int, str]:
        """Return the runs that workers have now, each with its worker."""
        now = self._clock()
        rows = self._database.connection.execute(
            "SELECT run, worker FROM lake_lease WHERE boot = ? AND until_s > ?", (now.boot, now.elapsed_s)
        )
        return dict(rows.fetchall())

    def taken(self, uploads: Sequence[str]) -> dict[str, int]:
        """Return the uploads that are in the lake, each with its SCU."""
        return taken_uploads(self._database.connection, uploads)

    def forget_uploads(self) -> None:
        """Forget the ids of uploads that are older than `UPLOADS_KEPT_S`, but for the newest epoch of each stream.

        A stream that rests for longer commits its last epoch again, if it was killed before it noted the commit.
        """
        with self._database.writing() as db:
            before_us = self._clock().wall_us - int(UPLOADS_KEPT_S * 1e6)
            epochs = db.execute("SELECT upload FROM lake_upload WHERE upload LIKE ?", (f"{EPOCH}%",)).fetchall()
            newest = dict[str, int]()
            for (upload,) in epochs:
                stream, _, epoch = upload.rpartition(" ")
                if epoch.isdecimal():
                    newest[stream] = max(newest.get(stream, 0), int(epoch))
            old = db.execute("SELECT upload FROM lake_upload WHERE wall_us < ?", (before_us,)).fetchall()
            kept = {f"{stream} {epoch}" for stream, epoch in newest.items()}
            db.executemany("DELETE FROM lake_upload WHERE upload = ?", [one for one in old if one[0] not in kept])

    def take_ids(self, name: str, count: int) -> int:
        """Return the first of ``count`` new ids; those of a worker that dies then are never used."""
        with self._database.writing() as db:
            row = db.execute("SELECT value FROM lake_meta WHERE name = ?", (f"next id of {name}",)).fetchone()
            first = int(row[0]) if row else 0
            db.execute(
                "INSERT INTO lake_meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (f"next id of {name}", first + count),
            )
        return first
