"""TPC-H's tables, as DuckDB generates them, and their rows as an application would put them.

A row is a record under its primary key. It has the columns that the joins look at, and those that an application
computes when it writes, since the language does not: products of two columns, a year, whether one column is later than
another, whether a text is of a kind.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import duckdb

#: The rows of each table: SQL for the fields of a record, after the keys.
_RECORDS: Final = {
    "region": ("r_regionkey", "name: r_name"),
    "nation": ("n_nationkey", "name: n_name, region: n_regionkey"),
    "supplier": (
        "s_suppkey",
        "name: s_name, nation: s_nationkey, complains: s_comment LIKE '%Customer%Complaints%'",
    ),
    "customer": (
        "c_custkey",
        "nation: c_nationkey, segment: c_mktsegment, balance: c_acctbal, code: left(c_phone, 2)",
    ),
    "part": (
        "p_partkey",
        (
            "brand: p_brand, type: p_type, size: p_size, brass: p_type LIKE '%BRASS', promo: p_type LIKE 'PROMO%', "
            "offered: p_brand != 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%' "
            "AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9), box: split_part(p_container, ' ', 1)"
        ),
    ),
    "partsupp": ("ps_partkey || '|' || ps_suppkey", "cost: ps_supplycost, worth: ps_supplycost * ps_availqty"),
    "orders": (
        "o_orderkey",
        (
            "cust: o_custkey, status: o_orderstatus, total: o_totalprice, date: o_orderdate, "
            "priority: o_orderpriority, urgent: o_orderpriority IN ('1-URGENT', '2-HIGH'), year: year(o_orderdate), "
            "special: o_comment LIKE '%special%requests%'"
        ),
    ),
    "lineitem": (
        "l_orderkey || '|' || l_linenumber",
        (
            "part: l_partkey, supp: l_suppkey, qty: l_quantity, price: l_extendedprice, discount: l_discount, "
            "net: l_extendedprice * (1 - l_discount), gross: l_extendedprice * (1 - l_discount) * (1 + l_tax), "
            "gain: l_extendedprice * l_discount, flag: l_returnflag, status: l_linestatus, ship: l_shipdate, "
            "receipt: l_receiptdate, year: year(l_shipdate), month: left(l_shipdate::VARCHAR, 7), mode: l_shipmode, "
            "late: l_receiptdate > l_commitdate, kept: l_receiptdate > l_commitdate AND l_commitdate > l_shipdate, "
            "fast: l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON'"
        ),
    ),
}
#: In how many refreshes the orders come that are not there in the beginning: one in so many of all comes by each.
REFRESHES: Final = 4
_SHARE: Final = 40


class Change(NamedTuple):
    """What a refresh puts, and the keys that it removes."""

    rows: dict[bytes, bytes]
    removed: list[bytes]


class Tables:
    """The tables of TPC-H in DuckDB, which are what they are in the store.

    Args:
        scale: TPC-H's factor: 1 has six million rows of `lineitem`.
        seed: Draws what the refreshes remove and change.
    """

    def __init__(self, scale: float, seed: int) -> None:
        self.database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        self.database.execute(f"LOAD '{_extension()}'")
        self.database.execute(f"CALL dbgen(sf={scale})")
        # A small database has so few suppliers that a part gets one of them twice.
        self.database.execute(
            "DELETE FROM partsupp WHERE rowid NOT IN (SELECT min(rowid) FROM partsupp GROUP BY ps_partkey, ps_suppkey)"
        )
        self._random = Random(seed)
        for table, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            self.database.execute(
                f"CREATE TABLE later_{table} AS FROM {table} WHERE hash({key}) % {_SHARE} < {REFRESHES};"
                f"DELETE FROM {table} WHERE hash({key}) % {_SHARE} < {REFRESHES}"
            )

    def rows(self, table: str, condition: str = "true") -> dict[bytes, bytes]:
        """Return rows of a table as keys and records."""
        key, fields = _RECORDS[table]
        found = self.database.execute(
            f"SELECT '{table}|' || {key}, to_json({{{fields}}})::VARCHAR FROM {table} WHERE {condition}"
        ).fetchall()
        return {key.encode(): record.encode() for key, record in found}

    def everything(self) -> dict[bytes, bytes]:
        """Return all rows of all tables."""
        return {key: record for table in _RECORDS for key, record in self.rows(table).items()}

    def refresh(self, number: int) -> Change:
        """Take in the orders of a refresh, remove as many others (RF1 and RF2), and change some customers."""
        run = self.database.execute
        present = [key for (key,) in run("SELECT o_orderkey FROM orders ORDER BY 1").fetchall()]
        condition = f"IN ({', '.join(map(str, self._random.sample(present, len(present) // _SHARE)))})"
        removed = [*self.rows("orders", f"o_orderkey {condition}"), *self.rows("lineitem", f"l_orderkey {condition}")]
        run(f"DELETE FROM lineitem WHERE l_orderkey {condition}; DELETE FROM orders WHERE o_orderkey {condition}")
        rows = dict[bytes, bytes]()
        for table, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            new = f"hash({key}) % {_SHARE} = {number}"
            run(f"INSERT INTO {table} FROM later_{table} WHERE {new}")
            rows |= self.rows(table, new)
        moved = f"c_custkey % {_SHARE} = {self._random.randrange(_SHARE)}"
        run(f"UPDATE customer SET c_mktsegment = 'BUILDING', c_acctbal = c_acctbal - 1000 WHERE {moved}")
        return Change(rows | self.rows("customer", moved), removed)


def _extension() -> Path:
    folder = Path(str(files("duckdb_extension_tpch")))
    (path,) = folder.glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")
    return path
