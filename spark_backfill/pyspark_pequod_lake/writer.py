"""Writes of batches and of streams: tasks stage raw files, and the driver makes those of all tasks one SCU.

    task     rows -> checked -> a file in the lake's staging place; its name and checksums go to the driver
    driver   the files of the tasks that succeeded -> one SCU, under the id of an upload

    batch    the option `upload`, else a new id                      the same id is taken once
    stream   the query's id, which its checkpoint keeps, and the epoch: an epoch that is run again is taken once

Tasks that are killed, or run twice, leave files that nobody commits; a commit whose answer is lost is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pequod_lake import Lake
from pequod_lake.coordination import epoch_id
from pequod_lake.errors import LakeBusyError, LakeError, LakeSchemaError
from pequod_lake.runs import LakeFile
from pequod_lake.schema import LakeSchema
from pequod_lake.staging import StagingJob
from pequod_lake.states import files_at
from pequod_lake.uploads import Upload
from pequod_spark.tasks import freeze_imports
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_pequod_lake import options as told
from pyspark_pequod_lake.columns import formed, refuse_written

_QUERY: Final = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task has written."""

    #: The number of the task's part of the rows.
    part: int
    job: StagingJob
    #: The id of the streaming query; None in a batch.
    query: str | None
    #: None if there were no rows.
    file: LakeFile | None


@dataclass(frozen=True, slots=True)
class _Target:
    """The table that is written, as tasks and commits get it."""

    location: str
    #: The text of the lake's schema, and the table's name.
    schema: str
    table: str
    operation_column: str | None
    job: StagingJob

    def stage(self, batches: Iterator[Any]) -> Staged:
        """Write the rows of a task into a file."""
        freeze_imports()
        context = TaskContext.get()
        assert context is not None
        part, query = context.partitionId(), context.getLocalProperty(_QUERY)
        files, table = files_at(self.location), LakeSchema.parse(self.schema).table(self.table)
        with self.job.alive(files):
            rows = formed(table, self.operation_column, batches)
            file = self.job.write(files, f"{part}-{context.taskAttemptId()}", table, rows)
        return Staged(part, self.job, query, file)

    def drop(self, job: StagingJob) -> None:
        """Delete what a job has staged."""
        job.drop(files_at(self.location))


def _targeted(options: Mapping[str, str], schema: StructType, known: frozenset[str], what: str) -> tuple[_Target, Lake]:
    """Return the target of a write and the lake, opened.

    Raises:
        LakeError: An option is not right, the columns do not fit, or there is no such lake.
    """
    told.refuse_unknown(options, known, what)
    job = StagingJob.new(told.lease_s(options))
    lake = told.opened(options)
    try:
        table = told.table_of(lake, options)
        operation_column = told.added_column(options, "operation_column", table)
        refuse_written(schema, table, operation_column)
        return _Target(told.location(options), lake.schema.text, table.name, operation_column, job), lake
    except BaseException:
        lake.close()
        raise


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame as one SCU."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._target, lake = _targeted(options, schema, told.WRITE, "a write")
        with lake:
            self._upload = options.get("upload") or f"spark {self._target.job.id}"
            if "upload" in options:
                Upload(lake.schema, options["upload"])
            #: Then tasks need not do anything.
            self._is_taken = bool(lake.coordinator.taken([self._upload]))

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of a task.

        Raises:
            UploadRefusedError: A row cannot be taken.
        """
        if self._is_taken:
            return Staged(0, self._target.job, None, None)
        return self._target.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible together.

        Raises:
            LakeError: They could not be taken. If it is not known whether they were, the message says so.
        """
        _commit(self._target, self._upload, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - failed tasks have files, too
        """Delete what tasks have staged."""
        self._target.drop(self._target.job)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each epoch of a stream as one SCU."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        if "upload" in options:
            raise LakeSchemaError("options", "a stream has no `upload`: its query's id and its epochs are the ids")
        self._target, lake = _targeted(options, schema, told.STREAM_WRITE, "a stream's write")
        lake.close()

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of a task.

        Raises:
            UploadRefusedError: A row cannot be taken.
        """
        return self._target.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the rows of an epoch visible together, unless they are.

        Raises:
            LakeError: They could not be taken; the epoch is run again when the query is.
        """
        staged = _staged(messages)
        if staged:
            assert staged[0].query is not None, "a streaming query has an id"
            _commit(self._target, epoch_id(staged[0].query, batchId), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - as above
        """Delete what tasks have staged; of those that failed, a sweep does it."""
        for job in {one.job for one in _staged(messages)}:
            self._target.drop(job)


def _commit(target: _Target, upload: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    staged = _staged(messages)
    files = [one.file for one in sorted(staged, key=lambda one: one.part) if one.file is not None]
    try:
        if files:
            with Lake(target.location) as lake:
                lake.take_staged(staged[0].job, upload, files)
    except LakeBusyError as error:
        raise LakeError(
            f"whether the rows were taken is not known: {error}; write them again with the option upload={upload!r}, "
            "so that they are taken once"
        ) from error
    for job in {one.job for one in staged}:
        target.drop(job)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [one for one in messages if isinstance(one, Staged)]
