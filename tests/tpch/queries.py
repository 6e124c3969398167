"""TPC-H's queries as cache joins, each with the SQL whose answer its rows are.

The numbers are those of the specification, but where a small database has no row with them. What the language cannot
say is in docs/trust.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Query(NamedTuple):
    """A query, or a part of one."""

    #: The number that TPC-H gives it, and what it is called here if it has several parts.
    name: str
    joins: str
    #: The table whose rows are the answer.
    table: str
    #: Gives a text, the key without the table, and a number; or a sum and a count, of which the mean is the answer.
    sql: str
    #: Whether keys begin with the number.
    is_ranked: bool = False


def _pricing(name: str, operator: str, field: str, sql: str) -> Query:
    return Query(
        f"1, {name}",
        f'q1_{name}|<flag>|<status> = {operator} lineitem|<o>|<n> with ship <= "1998-09-02", flag = <flag>, '
        f"status = <status>{f' as {field}' if field else ''}",
        f"q1_{name}",
        f"SELECT l_returnflag || '|' || l_linestatus, {sql} FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' "
        "GROUP BY ALL",
    )


_NET = "sum(l_extendedprice * (1 - l_discount))"
_NO_ORDER = "NOT EXISTS (FROM orders WHERE o_custkey = c_custkey)"

#: The alternatives of query 19: brand, box, greatest size, least quantity.
_BOXES: Final = (("Brand#12", "SM", 25, 1), ("Brand#23", "MED", 30, 10), ("Brand#34", "LG", 45, 20))

QUERIES: Final = (
    _pricing("qty", "sum", "qty", "sum(l_quantity)"),
    _pricing("price", "sum", "price", "sum(l_extendedprice)"),
    _pricing("net", "sum", "net", _NET),
    _pricing("gross", "sum", "gross", "sum(l_extendedprice * (1 - l_discount) * (1 + l_tax))"),
    _pricing("mean", "avg", "qty", "sum(l_quantity), count(*)"),
    _pricing("rows", "count", "", "count(*)"),
    Query(
        "2",
        'least|<p> = check part|<p> with size >= 10, size < 30, brass = true check region|<r> with name = "EUROPE" '
        "check nation|<n> with region = <r> check supplier|<s> with nation = <n> min partsupp|<p>|<s> as cost;"
        'q2|<p>|<s> = check least|<p> with . = <cost> check region|<r> with name = "EUROPE" '
        "check nation|<n> with region = <r> check supplier|<s> with nation = <n> "
        "copy partsupp|<p>|<s> with cost = <cost> as cost",
        "q2",
        "WITH offers AS (FROM part, partsupp, supplier, nation, region WHERE p_partkey = ps_partkey "
        "AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE' "
        "AND p_size >= 10 AND p_size < 30 AND p_type LIKE '%BRASS') "
        "SELECT ps_partkey || '|' || ps_suppkey, ps_supplycost FROM offers QUALIFY "
        "ps_supplycost = min(ps_supplycost) OVER (PARTITION BY ps_partkey)",
    ),
    Query(
        "3",
        'unshipped|<o>|<date> = check customer|<c> with segment = "BUILDING" '
        'check orders|<o> with cust = <c>, date = <date>, date < "1995-03-15" '
        'sum lineitem|<o>|<n> with ship > "1995-03-15" as net;'
        "q3|<net:f64>|<o>|<date> = copy unshipped|<o>|<date> with . = <net> keep last 10",
        "q3",
        f"SELECT o_orderkey || '|' || o_orderdate, {_NET} FROM customer, orders, lineitem "
        "WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey "
        "AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15' GROUP BY ALL ORDER BY 2 DESC LIMIT 10",
        is_ranked=True,
    ),
    Query(
        "4",
        "late|<o> = count lineitem|<o>|<n> with late = true;"
        "q4|<priority> = check late|<o> "
        'count orders|<o> with date >= "1993-07-01", date < "1993-10-01", priority = <priority>',
        "q4",
        "SELECT o_orderpriority, count(*) FROM orders WHERE o_orderdate >= DATE '1993-07-01' "
        "AND o_orderdate < DATE '1993-10-01' AND EXISTS "
        "(FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate) GROUP BY ALL",
    ),
    Query(
        "5",
        'q5|<nation> = check region|<r> with name = "ASIA" check nation|<n> with region = <r>, name = <nation> '
        'check customer|<c> with nation = <n> check orders|<o> with cust = <c>, date >= "1994-01-01", '
        'date < "1995-01-01" sum lineitem|<o>|<l> with supp = <s> as net check supplier|<s> with nation = <n>',
        "q5",
        f"SELECT n_name, {_NET} FROM customer, orders, lineitem, supplier, nation, region WHERE c_custkey = o_custkey "
        "AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey "
        "AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA' "
        "AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01' GROUP BY ALL",
    ),
    Query(
        "6",
        'q6|<year> = sum lineitem|<o>|<n> with ship >= "1994-01-01", ship < "1995-01-01", discount >= 0.05, '
        "discount <= 0.07, qty < 24, year = <year> as gain",
        "q6",
        "SELECT '1994', sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' AND "
        "l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    ),
    Query(
        "7",
        "q7|<from>|<to>|<year> = check nation|<a> with name = <from> check supplier|<s> with nation = <a> "
        'sum lineitem|<o>|<l> with supp = <s>, ship >= "1995-01-01", ship <= "1996-12-31", year = <year> as net '
        "check orders|<o> with cust = <c> check customer|<c> with nation = <b> check nation|<b> with name = <to>",
        "q7",
        f"SELECT a.n_name || '|' || b.n_name || '|' || year(l_shipdate), {_NET} "
        "FROM supplier, lineitem, orders, customer, nation a, nation b WHERE s_suppkey = l_suppkey "
        "AND o_orderkey = l_orderkey AND c_custkey = o_custkey AND s_nationkey = a.n_nationkey "
        "AND c_nationkey = b.n_nationkey AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31' GROUP BY ALL",
    ),
    Query(
        "8, of which one nation has a share",
        'q8|<nation>|<year> = check region|<r> with name = "AMERICA" check nation|<n> with region = <r> '
        'check customer|<c> with nation = <n> check orders|<o> with cust = <c>, date >= "1995-01-01", '
        'date <= "1996-12-31", year = <year> sum lineitem|<o>|<l> with supp = <s> as net '
        "check supplier|<s> with nation = <m> check nation|<m> with name = <nation>",
        "q8",
        f"SELECT m.n_name || '|' || year(o_orderdate), {_NET} FROM supplier, lineitem, orders, customer, nation n, "
        "nation m, region WHERE s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey "
        "AND c_nationkey = n.n_nationkey AND n.n_regionkey = r_regionkey AND r_name = 'AMERICA' "
        "AND s_nationkey = m.n_nationkey AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31' GROUP BY ALL",
    ),
    Query(
        "10",
        'q10|<c> = check orders|<o> with cust = <c>, date >= "1993-10-01", date < "1994-01-01" '
        'sum lineitem|<o>|<l> with flag = "R" as net',
        "q10",
        f"SELECT o_custkey, {_NET} FROM orders, lineitem WHERE l_orderkey = o_orderkey "
        "AND o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01' AND l_returnflag = 'R' GROUP BY ALL",
    ),
    Query(
        "11, without its bound",
        'q11|<p> = check nation|<n> with name = "GERMANY" check supplier|<s> with nation = <n> '
        "sum partsupp|<p>|<s> as worth",
        "q11",
        "SELECT ps_partkey, sum(ps_supplycost * ps_availqty) FROM partsupp, supplier, nation "
        "WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY' GROUP BY ALL",
    ),
    Query(
        "12",
        'q12|<mode>|<urgent> = check lineitem|<o>|<l> with mode = <mode>, kept = true, receipt >= "1994-01-01", '
        'receipt < "1995-01-01" count orders|<o> with urgent = <urgent>',
        "q12",
        "SELECT l_shipmode || '|' || (o_orderpriority IN ('1-URGENT', '2-HIGH')), count(*) FROM orders, lineitem "
        "WHERE o_orderkey = l_orderkey AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate "
        "AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01' GROUP BY ALL",
    ),
    Query(
        "13",
        "placed|<c> = count orders|<o> with cust = <c>, special = false;"
        "q13|<orders> = count placed|<c> with . = <orders>",
        "q13",
        "WITH placed AS (SELECT o_custkey, count(*) AS n FROM orders WHERE o_comment NOT LIKE '%special%requests%' "
        "GROUP BY ALL) SELECT n, count(*) FROM placed GROUP BY ALL",
    ),
    Query(
        "13, those without an order",
        "q13_none|<segment> = count customer|<c> with segment = <segment> unless placed|<c>",
        "q13_none",
        "SELECT c_mktsegment, count(*) FROM customer WHERE NOT EXISTS (FROM orders WHERE o_custkey = c_custkey "
        "AND o_comment NOT LIKE '%special%requests%') GROUP BY ALL",
    ),
    Query(
        "14, of which some have a share",
        "q14|<month>|<promo> = check lineitem|<o>|<l> with month = <month>, part = <p> check part|<p> with "
        "promo = <promo> sum lineitem|<o>|<l> as net",
        "q14",
        f"SELECT left(l_shipdate::VARCHAR, 7) || '|' || (p_type LIKE 'PROMO%'), {_NET} FROM lineitem, part "
        "WHERE l_partkey = p_partkey GROUP BY ALL",
    ),
    Query(
        "15",
        'earned|<s> = sum lineitem|<o>|<l> with supp = <s>, ship >= "1996-01-01", ship < "1996-04-01" as net;'
        "q15|<net:f64>|<s> = copy earned|<s> with . = <net> keep last 1",
        "q15",
        f"SELECT l_suppkey, {_NET} FROM lineitem WHERE l_shipdate >= DATE '1996-01-01' "
        "AND l_shipdate < DATE '1996-04-01' GROUP BY ALL ORDER BY 2 DESC LIMIT 1",
        is_ranked=True,
    ),
    Query(
        "16",
        "offer|<brand>|<type>|<size>|<s> = check part|<p> with offered = true, brand = <brand>, type = <type>, "
        "size = <size> count partsupp|<p>|<s> unless supplier|<s> with complains = true;"
        "q16|<brand>|<type>|<size> = count offer|<brand>|<type>|<size>|<s>",
        "q16",
        "SELECT p_brand || '|' || p_type || '|' || p_size, count(DISTINCT ps_suppkey) FROM partsupp, part "
        "WHERE p_partkey = ps_partkey AND p_brand != 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%' "
        "AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9) AND ps_suppkey NOT IN "
        "(SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%') GROUP BY ALL",
    ),
    Query(
        "18",
        "pieces|<o> = sum lineitem|<o>|<l> as qty;"
        "q18|<c>|<o> = check pieces|<o> with . > 250 copy orders|<o> with cust = <c> as total",
        "q18",
        "SELECT o_custkey || '|' || o_orderkey, o_totalprice FROM orders WHERE o_orderkey IN "
        "(SELECT l_orderkey FROM lineitem GROUP BY ALL HAVING sum(l_quantity) > 250)",
    ),
    Query(
        "19",
        "".join(
            f'q19|<brand> = check part|<p> with brand = "{brand}", brand = <brand>, box = "{box}", size >= 1, '
            f"size <= {size} sum lineitem|<o>|<l> with part = <p>, qty >= {least}, qty <= {least + 30}, fast = true "
            "as net;"
            for brand, box, size, least in _BOXES
        ),
        "q19",
        f"SELECT p_brand, {_NET} FROM lineitem, part WHERE p_partkey = l_partkey AND l_shipmode IN ('AIR', 'REG AIR') "
        "AND l_shipinstruct = 'DELIVER IN PERSON' AND ("
        + " OR ".join(
            f"(p_brand = '{brand}' AND p_container LIKE '{box} %' AND p_size BETWEEN 1 AND {size} "
            f"AND l_quantity BETWEEN {least} AND {least + 30})"
            for brand, box, size, least in _BOXES
        )
        + ") GROUP BY ALL",
    ),
    Query(
        "21",
        "sends|<o>|<s> = count lineitem|<o>|<l> with supp = <s>; senders|<o> = count sends|<o>|<s>;"
        "delays|<o>|<s> = count lineitem|<o>|<l> with late = true, supp = <s>; delayers|<o> = count delays|<o>|<s>;"
        'q21|<name> = check orders|<o> with status = "F" check senders|<o> with . >= 2 check delayers|<o> with . = 1 '
        "count lineitem|<o>|<l> with late = true, supp = <s> check supplier|<s> with name = <name>",
        "q21",
        "SELECT s_name, count(*) FROM supplier, lineitem a, orders WHERE s_suppkey = a.l_suppkey "
        "AND o_orderkey = a.l_orderkey AND o_orderstatus = 'F' AND a.l_receiptdate > a.l_commitdate "
        "AND EXISTS (FROM lineitem b WHERE b.l_orderkey = a.l_orderkey AND b.l_suppkey != a.l_suppkey) "
        "AND NOT EXISTS (FROM lineitem b WHERE b.l_orderkey = a.l_orderkey AND b.l_suppkey != a.l_suppkey "
        "AND b.l_receiptdate > b.l_commitdate) GROUP BY ALL",
    ),
    Query(
        "22, its bound is a literal",
        "buys|<c> = count orders|<o> with cust = <c>;"
        "q22|<code> = sum customer|<c> with balance > 4900, code = <code> as balance unless buys|<c>",
        "q22",
        f"SELECT left(c_phone, 2), sum(c_acctbal) FROM customer WHERE c_acctbal > 4900 AND {_NO_ORDER} GROUP BY ALL",
    ),
)
