"""What LinkBench and TAOBench publish of Facebook's social graph, as far as a small graph shows it.

Source:
    LinkBench: T. Armstrong et al., "LinkBench: a Database Benchmark based on the Facebook Social Graph", SIGMOD 2013;
    github.com/facebookarchive/linkbench, config/FBWorkload.properties and config/Distribution.dat.
    TAOBench: A. Cheng et al., "TAOBench: An End-to-End Benchmark for Social Network Workloads", VLDB 2022;
    github.com/audreyccheng/taobench, src/workload_a.json.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Mix(NamedTuple):
    """A workload: how often each operation comes, and whom it concerns."""

    name: str
    #: The weights of operations, which `Graph` has as methods.
    operations: dict[str, float]
    #: The types of links with their weights.
    types: dict[str, float]
    #: The exponents of Zipf's law by which reads and writes choose a node.
    read_shape: float
    write_shape: float
    #: The weights of the numbers of writes in a transaction.
    sizes: dict[int, float]


LINKBENCH: Final = Mix(
    "linkbench",
    {
        "add_link": 8.9886601,
        "delete_link": 2.9907664,
        "update_link": 8.0122125,
        "count_links": 4.8863567,
        "get_link": 0.5261142,
        "newest_links": 50.7119145,
        "get_node": 12.9326683,
        "add_node": 2.5732789,
        "update_node": 7.366437,
        "delete_node": 1.0115914,
    },
    # `link_type_count`: the links of a node are shared out among the types.
    {"1": 1, "2": 1},
    0.8,
    0.741,
    {1: 1},
)

#: Reads are to writes as 171 to 15, transactions of reads to those of writes as 57 to 1; each kind has weights of its
#: own. The kinds of edges and the sizes of transactions are those of the same file. A deletion has the weight 0 there;
#: here it has that of an addition, since a graph without any says little.
TAOBENCH: Final = Mix(
    "taobench",
    {
        "get_node": 171 * 475 / 958,
        "get_link": 171 * 68 / 958 + 57,
        "newest_links": 171 * 376 / 958,
        "count_links": 171 * 39 / 958,
        "add_node": 15 * 111 / 715,
        "update_node": 15 * 214 / 715,
        "add_link": 15 * 10 / 715,
        "update_link": 15 * 380 / 715,
        "delete_link": 15 * 10 / 715,
        "transaction": 1,
    },
    {"unique": 52, "bidirectional": 200, "unique_and_bidirectional": 20, "other": 728},
    0.8,
    0.741,
    {2: 104440, 3: 283626, 4: 340601, 5: 43853, 6: 5878, 7: 107888, 21: 51871, 26: 20160},
)

#: How many percent of the nodes have that many links at most: points of LinkBench's distribution.
DEGREES: Final = (
    (0, 19.747),
    (1, 72.985),
    (2, 86.738),
    (3, 91.817),
    (4, 94.459),
    (8, 97.817),
    (16, 99.033),
    (32, 99.454),
    (64, 100.0),
)
