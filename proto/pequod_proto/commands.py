"""Numbers and words of the contract that the .proto says in comments: kinds and statuses of commands, a reason."""

from typing import Final

GET: Final = 1
PUT: Final = 2
REMOVE: Final = 3
SCAN: Final = 4
SCAN_LIMIT: Final = 5
SCAN_DOWN: Final = 6
COUNT: Final = 7

OK: Final = 0
ABSENT: Final = 1
FAILED: Final = 2
PART: Final = 3

#: The reason that a server gives with UNAVAILABLE when it ends a call because it stops.
STOPPING: Final = "ServerStopping"

#: A server refuses messages beyond `message_bytes_max` with the name of the setting; those beyond so much more are
#: refused by gRPC, which tells this sum instead.
MESSAGE_SLACK_BYTES: Final = 1 << 20

#: Different levels of freshness in one batch: a server waits for all of them at once, with two kilobytes for each.
LEVELS_MAX: Final = 4096

#: Entries of each column of a LoadBackfill; ranges of a load, of a hello or released in one message; and next groups of
#: a load. A server refuses more.
LOAD_ENTRIES_MAX: Final = 1 << 18
RANGES_MAX: Final = 1 << 18
NEXT_GROUPS_MAX: Final = 1 << 14
