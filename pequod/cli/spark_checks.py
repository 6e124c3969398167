"""The checks of Spark's commands before Spark starts: an error that can be found at once is reported at once."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from pequod.addresses import is_local
from pequod.cli.connection import connected
from pequod.cli.exits import ExitCode, fail

if TYPE_CHECKING:
    from pequod.language.spec import Pattern

_MASTER: Final = re.compile(r"local|local\[(\*|[0-9]+)(, *[0-9]+)?\]|yarn|(spark|k8s)://.+")
#: The size of a line with a row, approximately.
_LINE_BYTES: Final = 50
#: hdfs:, s3a:, and so on: only Spark can find such paths.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def check_options(master: str, conf: Sequence[str] | None, *targets: str) -> None:
    """End the command if the options for Spark are wrong, or PySpark is not installed.

    Args:
        master: The master of Spark.
        conf: Settings of Spark.
        targets: The servers, which Spark's tasks must reach too.
    """
    from pequod_spark.session import require_pyspark

    if master.startswith("sc://"):
        fail(
            ExitCode.USAGE,
            "this command needs a classic session of Spark, and --master a local or a cluster's one: through Spark "
            f"Connect ({master}) programs read, write, stream and look up, as docs/spark.md shows",
        )
    if _MASTER.fullmatch(master) is None:
        forms = "local, local[N], local[*], spark://HOST:PORT, yarn or k8s://..."
        fail(ExitCode.USAGE, f"--master is {forms}, not {master!r}")
    for setting in conf or ():
        parse_setting(setting)
    for target in targets:
        if is_local(target) and not _is_here(master):
            where = f"the tasks of {master} run on other machines, from where {target} is not this server"
            fail(ExitCode.USAGE, f"{where}: name it by --target as they reach it")
    require_pyspark()


def parse_setting(text: str) -> tuple[str, str]:
    """Return the name and the value of ``--conf NAME=VALUE``, or end the command."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        fail(ExitCode.USAGE, f"--conf needs NAME=VALUE, not {text!r}")
    return name, value


def _is_here(master: str) -> bool:
    """Return whether tasks run on this machine, judged by the address of the master."""
    return master.startswith("local") or (master.startswith("spark://") and is_local(master.removeprefix("spark://")))


def first_file(path: str, master: str) -> Path | None:
    """Return the first of the files that a path names, or end the command if none can be read.

    Returns:
        None if only Spark can find out: the path is of another file system, or of the machines of a cluster.
    """
    if path.startswith("file:"):
        path = path.removeprefix("file:").removeprefix("//")
    elif _SCHEME.match(path) or not master.startswith("local"):
        return None
    if "{" in path:
        return None
    found = sorted(Path(each) for each in glob(path))  # noqa: PTH207 - the pattern may be absolute
    if not found:
        fail(ExitCode.USAGE, f"there is no file {path}")
    files = sorted(_files_in(found[0])) if found[0].is_dir() else found
    if not files:
        fail(ExitCode.USAGE, f"the folder {found[0]} has no files")
    try:
        with files[0].open("rb"):
            return files[0]
    except OSError as error:
        fail(ExitCode.USAGE, f"cannot read the file: {error}")


def first_key(kind: str, file: Path, pattern: Pattern | None) -> bytes | None:
    """Return the key that a file's first row will have, or raise the error in its columns.

    Returns:
        None if the file has no rows, or if the key depends on more than the file.

    Raises:
        ColumnError, RowError: The row cannot be written.
    """
    import pyarrow as pa
    from pyspark.sql.types import BinaryType, StructType
    from pyspark_pequod.packing import Packing

    if any("=" in folder for folder in file.parts[:-1]) or (kind == "jsonl" and pattern is not None):
        return None  # Spark makes columns from the names of such folders, and from all lines.
    try:
        row = _first_of_parquet(file) if kind == "parquet" else _first_of_text(kind, file, pattern)
    except (OSError, pa.ArrowInvalid) as error:
        fail(ExitCode.REFUSED, f"{file}: it cannot be read as {kind}: {error}")
    schema = StructType()
    for name in row.schema.names:
        schema.add(name, BinaryType())
    keys = Packing(schema, pattern).pack(row)["key"].to_pylist()
    return keys[0] if keys else None


def row_count(kind: str, path: str, file: Path | None) -> int | None:
    """Return the approximate number of rows in a source, None if it is more than one file."""
    if file is None or file != Path(path):
        return None
    if kind == "parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(file).num_rows)
    return file.stat().st_size // _LINE_BYTES


def reach(target: str) -> None:
    """Check that a server answers, before Spark is started."""
    with connected(target) as client:
        client.joins()


def reach_to_write(target: str, key: bytes | None) -> None:
    """Check that a server answers and, if a key is named, that we may write it; nothing is written."""
    with connected(target) as client:
        client.joins()
        if key is not None:
            # The server checks the right to the first key even if the range is empty.
            client.remove_range(key, key)


def _files_in(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        inside = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith((".", "_")) for part in inside):
            yield file


def _first_of_parquet(file: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.ParquetFile(file)
    row = next(rows.iter_batches(batch_size=1), pa.RecordBatch.from_pylist([], schema=rows.schema_arrow))
    plain = [column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in row.columns]
    return pa.record_batch(plain, names=row.schema.names)


def _first_of_text(kind: str, file: Path, pattern: Pattern | None) -> Any:
    import pyarrow as pa

    from pequod.cli.rowfiles import BadRow, FileError, read_csv, read_json_lines

    with file.open("rb") as lines:
        if pattern is not None:
            return _first_of_columns(lines, pattern)
        try:
            row = next((read_csv if kind == "csv" else read_json_lines)(lines), None)
        except FileError:
            lines.seek(0)
            return _first_of_columns(lines, None)
    if isinstance(row, BadRow):
        fail(ExitCode.REFUSED, f"{file}, line {row.place}: {row.reason}")
    cells: tuple[list[bytes], list[bytes]] = ([], []) if row is None else ([row.key], [row.value])
    return pa.record_batch([pa.array(column, pa.binary()) for column in cells], names=["key", "value"])


def _first_of_columns(lines: BinaryIO, pattern: Pattern | None) -> Any:
    """Return the first row of a CSV file, with numbers in slots of a fixed width, since only numbers are padded."""
    import pyarrow as pa

    cells = csv.reader(line.decode("utf-8", "surrogateescape") for line in lines)
    header = [cell.removeprefix("\ufeff") for cell in next(cells, [])]
    row = dict(zip(header, next(cells, []), strict=False))
    is_there = len(row) == len(header)
    columns = {name: pa.array([row[name]] if is_there else [], pa.string()) for name in header}
    for slot in pattern.slots() if pattern is not None else ():
        text = row.get(slot.name, "")
        if is_there and slot.width is not None and text.isascii() and text.isdigit():
            columns[slot.name] = pa.array([int(text)])
    return pa.record_batch(columns)
