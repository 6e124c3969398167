"""What a request may hold: its columns are counted before protobuf makes anything of them.

    bytes -> short: protobuf
          -> tally: how many entries each column has -> within bounds: protobuf
                                                     -> LimitExceededError, BadRequestError

Protobuf makes up to 170 bytes of an entry of two bytes: a message of 4 MiB would take a server's whole memory. All that
may stand in a request many times has a bound here, and a type of requests that has none for a column cannot be served:
repeated fields; messages of a oneof, each of which protobuf makes anew; and fields that this server does not know.
Messages of other fields are put together into one, and bytes and strings take what they have on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, assert_never

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from pequod_proto.contract import LOAD_ENTRIES_MAX, NEXT_GROUPS_MAX, RANGES_MAX

from pequod.commands.kinds import ARGUMENTS_MAX, NUMBERS_MAX
from pequod.errors import BadRequestError, LimitExceededError
from pequod_server.config import ServerConfig
from pequod_server.memory.admission import SMALL_BYTES
from pequod_server.once.parts import PAGE_ROWS
from pequod_server.wire.tally import BYTES, FIELD_BYTES, FIELDS, FIXED32, FIXED64, MESSAGE, SIZED, VARINT, tally


class Setting(NamedTuple):
    """No more than a setting says; in a column of single bytes each byte counts."""

    name: str


class AtMost(NamedTuple):
    """No more than a number that the contract says."""

    most: int


class Beside(NamedTuple):
    """No more than another column of the message has, or a few times as many; that column is bound by a setting."""

    column: str
    times: int


Bound = Setting | AtMost | Beside

_COMMANDS: Final = Setting("batch_commands_max")
_OF_TRANSACTION: Final = Setting("transaction_commands_max")
_ENTRIES: Final = AtMost(LOAD_ENTRIES_MAX)
_RANGES: Final = AtMost(RANGES_MAX)
#: Clients say it once; to say it again is no use.
_ONCE: Final = AtMost(16)
#: Fields that a later client may send.
NOT_KNOWN_MAX: Final = 1 << 17

#: By type of message and field; the counts of all messages of this type in a request are one.
BOUNDS: Final[Mapping[str, Mapping[str, Bound]]] = {
    "MultiGetRequest": {"keys": _COMMANDS},
    "MultiPutRequest": {"keys": _COMMANDS, "values": _COMMANDS},
    "ExecuteRequest": {
        "kinds": _COMMANDS,
        "arguments": Beside("kinds", ARGUMENTS_MAX),
        "numbers": Beside("kinds", NUMBERS_MAX),
        "fresh_commands": Beside("kinds", 1),
        "fresh_levels": Beside("kinds", 1),
        "once_commands": Beside("kinds", 1),
        "request_ids": Beside("kinds", 1),
        "batch_positions": Beside("kinds", 1),
    },
    "CommandColumns": {
        "kinds": _OF_TRANSACTION,
        "arguments": Beside("kinds", ARGUMENTS_MAX),
        "numbers": Beside("kinds", 1),
    },
    "TransactionRequest": {
        "compare_keys": _OF_TRANSACTION,
        "compare_operators": _OF_TRANSACTION,
        "compare_values": _OF_TRANSACTION,
    },
    "ExplainRequest": {"range": _ONCE},
    "InvalidateRequest": {"range": _ONCE},
    "LoadBackfillRequest": dict.fromkeys(
        (
            "firsts", "lasts", "row_counts", "tails", "tail_at", "values", "value_at", "times", "source_keys",
            "source_key_at",
        ),
        _ENTRIES,
    ),
    "WatchRangesRequest": {"ranges": Setting("watches_max")},
    "PeerLoadRequest": {"firsts": _RANGES, "lasts": _RANGES, "next": AtMost(NEXT_GROUPS_MAX)},
    "PeerFeedRequest": {"released_firsts": _RANGES, "released_lasts": _RANGES},
    "PeerFeedHello": {"firsts": _RANGES, "lasts": _RANGES},
    "PeerIdParts": dict.fromkeys(("ids", "outcomes", "ages_ms"), AtMost(PAGE_ROWS)),
    "PeerWriteRequest": {"keys": _COMMANDS, "values": _COMMANDS, "deadlines": _COMMANDS},
}  # fmt: skip

_VARINTS: Final = frozenset(
    {
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_BOOL,
        FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_ENUM,
        FieldDescriptor.TYPE_SINT32,
        FieldDescriptor.TYPE_SINT64,
    }
)
_EIGHT: Final = frozenset({FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64})
_FOUR: Final = frozenset({FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32})


def may_be_many(field: FieldDescriptor) -> bool:
    """Return whether protobuf makes something of each time that a field stands in a message."""
    is_one_of = field.containing_oneof is not None and len(field.containing_oneof.fields) > 1
    return field.is_repeated or (is_one_of and field.message_type is not None)


class Contents:
    """Makes messages of one type of the bytes of requests.

    Args:
        message_type: The class of the messages.
        bounds: Of the fields of all types of messages.

    Raises:
        LookupError: A field of such a message, or of one in it, may be there many times and has no bound.

    Invariants:
        1. Slot 0 of ``_most`` is that of fields that are not known; the others are those of ``columns``, in order.
    """

    __slots__ = ("_layout", "_make", "_most", "_of_settings", "columns")

    def __init__(
        self,
        message_type: type[Message],
        config: ServerConfig,
        bounds: Mapping[str, Mapping[str, Bound]] = BOUNDS,
    ) -> None:
        self._make = message_type.FromString
        #: The names of the fields that are counted, and their bounds.
        self.columns: list[tuple[str, Bound]] = []
        layout = bytearray()
        types = _types_of(message_type.DESCRIPTOR)
        places = {name: at for at, name in enumerate(types)}
        for one in types.values():
            fields = bytearray(FIELDS * FIELD_BYTES)
            for field in one.fields:
                slot = self._slot(field, bounds.get(one.name, {}).get(field.name))
                inner = 0 if field.message_type is None else places[field.message_type.full_name]
                place = field.number * FIELD_BYTES
                fields[place : place + FIELD_BYTES] = bytes([_shape(field, is_counted=slot > 0), slot, inner])
            layout += fields
        self._layout = bytes(layout)
        self._of_settings = {
            bound.name: getattr(config, bound.name) for _, bound in self.columns if isinstance(bound, Setting)
        }
        self._most = (NOT_KNOWN_MAX, *(self._most_of(bound) for _, bound in self.columns))

    def _slot(self, field: FieldDescriptor, bound: Bound | None) -> int:
        assert field.number < FIELDS, "the layout has no room for fields of greater numbers"
        if bound is None:
            if may_be_many(field):
                raise LookupError(f"{field.full_name} may be there many times and has no bound; see {__name__}.BOUNDS")
            return 0
        self.columns.append((field.name, bound))
        return len(self.columns)

    def _most_of(self, bound: Bound) -> int:
        match bound:
            case Setting(name=name):
                count: int = self._of_settings[name]
                return count
            case AtMost(most=most):
                return most
            case Beside(column=column, times=times):
                return times * self._most_of(dict(self.columns)[column])
            case _:
                assert_never(bound)

    def message(self, data: bytes) -> Any:
        """Return the message of the bytes of a request.

        A short one holds too few entries to matter, and is not looked at.

        Raises:
            LimitExceededError, BadRequestError: A column is too long.
            DecodeError: The bytes are no such message.
        """
        if len(data) > SMALL_BYTES:
            counts = self.counts(data)
            if counts is None:
                raise DecodeError("its bytes are damaged")
            self._judge(counts)
        return self._make(data)

    def counts(self, data: bytes) -> list[int] | None:
        """Return how many fields are not known, and how many entries each column has, up to the first that is too long.

        None: the bytes are no such message, for another reason than strings that are no UTF-8.
        """
        return tally(data, self._layout, self._most)

    def _judge(self, counts: list[int]) -> None:
        if counts[0] > NOT_KNOWN_MAX:
            raise BadRequestError(f"the request has more than {NOT_KNOWN_MAX} fields that this server does not know")
        by_column = {name: count for (name, _), count in zip(self.columns, counts[1:], strict=True)}
        for (name, bound), count, most in zip(self.columns, counts[1:], self._most[1:], strict=True):
            if isinstance(bound, Setting) and count > most:
                raise LimitExceededError(bound.name, count, most)
            if isinstance(bound, Beside) and count > bound.times * by_column[bound.column]:
                beside = f"the {by_column[bound.column]} {bound.column} of this request take"
                raise BadRequestError(f"{name} has at least {count} entries, more than {beside}")
            if count > most:
                raise BadRequestError(f"{name} may have {most} entries, and this request has more; send several")


def _types_of(descriptor: Any) -> dict[str, Any]:
    """Return a type of messages and those in it, by their names, each before those in it."""
    # Depth first would put a type before another that holds it: the last place of each counts.
    found: dict[str, Any] = {}
    left = [descriptor]
    while left:
        one = left.pop(0)
        found.pop(one.full_name, None)
        found[one.full_name] = one
        left += [field.message_type for field in one.fields if field.message_type is not None]
    return found


def _shape(field: FieldDescriptor, *, is_counted: bool) -> int:
    if field.message_type is not None:
        return MESSAGE
    if field.type in _VARINTS:
        return VARINT
    if field.type in _EIGHT | _FOUR:
        assert not field.is_repeated, "columns of fixed numbers would be counted by their size"
        return FIXED64 if field.type in _EIGHT else FIXED32
    return SIZED if is_counted and not field.is_repeated else BYTES
