"""A number and a word of the contract that the .proto says in comments; pequod/commands has the kinds of commands."""

from typing import Final

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
