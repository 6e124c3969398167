"""A number and a word of the contract that the .proto says in comments; pequod/commands has the kinds of commands."""

from typing import Final

#: The reason that a server gives with UNAVAILABLE when it ends a call because it stops.
STOPPING: Final = "ServerStopping"

#: A server refuses messages beyond `message_bytes_max` with the name of the setting; those beyond so much more are
#: refused by gRPC, which tells this sum instead.
MESSAGE_SLACK_BYTES: Final = 1 << 20
