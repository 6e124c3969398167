"""The kinds and statuses of commands in a batch, as the .proto describes them at ExecuteRequest and ExecuteReply."""

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
TRUNCATED: Final = 3
