"""Files of a lake as a table of a query in DuckDB.

DuckDB reads files in a folder itself, and knows no checksums: the whole file is compared before. Files elsewhere it
reads through Arrow, which compares the checksum of each page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from pequod_lake.reading import LakeReader
from pequod_lake.runs import LakeFile
from pequod_lake.store import FolderFiles


def table_of(db: duckdb.DuckDBPyConnection, reader: LakeReader, files: Sequence[LakeFile], stored: Any) -> str:
    """Return what a query names in its FROM to read the rows of files.

    Args:
        stored: The Arrow schema of the rows; columns that a file does not have are null.

    Raises:
        LakeCorruptError: A file is damaged.
    """
    if isinstance(reader.files, FolderFiles):
        paths = [str(reader.checked_path(file)).replace("'", "''") for file in files]
        source = "read_parquet([{}], union_by_name = true)".format(", ".join(f"'{path}'" for path in paths))
        if all(set(stored.names) <= set(reader.names_of(file)) for file in files):
            return source
        none = _name(db)
        db.register(none, stored.empty_table())
        return f'(SELECT * FROM "{none}" UNION ALL BY NAME SELECT * FROM {source})'  # noqa: S608 - names of our own
    from pyarrow import dataset  # noqa: PLC0415 - slow to import, and not needed for a folder

    from pequod_lake.objects import ObjectFiles  # noqa: PLC0415 - as above

    assert isinstance(reader.files, ObjectFiles)
    for file in files:
        reader.verify_footer(file)
    checked = dataset.ParquetFragmentScanOptions(page_checksum_verification=True, pre_buffer=True)
    found = dataset.dataset(
        [reader.files.whole(file.path) for file in files],
        schema=stored,
        filesystem=reader.files.filesystem,
        format=dataset.ParquetFileFormat(default_fragment_scan_options=checked),
    )
    name = _name(db)
    db.register(name, found)
    return f'"{name}"'


def _name(db: duckdb.DuckDBPyConnection) -> str:
    return f"_files_{len(db.execute('SHOW TABLES').fetchall())}"
