from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Freshness(_message.Message):
    __slots__ = ("after", "latest", "max_age_ms", "wait_ms")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    after: bytes
    latest: bool
    max_age_ms: int
    wait_ms: int
    def __init__(self, after: _Optional[bytes] = ..., latest: _Optional[bool] = ..., max_age_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("server_id", "revision", "token", "age_ms")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    server_id: int
    revision: int
    token: bytes
    age_ms: int
    def __init__(self, server_id: _Optional[int] = ..., revision: _Optional[int] = ..., token: _Optional[bytes] = ..., age_ms: _Optional[int] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("key", "freshness")
    KEY_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    freshness: Freshness
    def __init__(self, key: _Optional[bytes] = ..., freshness: _Optional[_Union[Freshness, _Mapping]] = ...) -> None: ...

class GetReply(_message.Message):
    __slots__ = ("header", "value")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    header: Header
    value: bytes
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., value: _Optional[bytes] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ("key", "value", "ttl_ms", "keep_ttl")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    KEEP_TTL_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    ttl_ms: int
    keep_ttl: bool
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., ttl_ms: _Optional[int] = ..., keep_ttl: _Optional[bool] = ...) -> None: ...

class PutReply(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: Header
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ...) -> None: ...

class WriteIfRequest(_message.Message):
    __slots__ = ("key", "value", "condition", "expected", "ttl_ms", "keep_ttl", "request_id")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    KEEP_TTL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    condition: int
    expected: bytes
    ttl_ms: int
    keep_ttl: bool
    request_id: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., condition: _Optional[int] = ..., expected: _Optional[bytes] = ..., ttl_ms: _Optional[int] = ..., keep_ttl: _Optional[bool] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class WriteIfReply(_message.Message):
    __slots__ = ("header", "met", "present")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    MET_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    header: Header
    met: bool
    present: bytes
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., met: _Optional[bool] = ..., present: _Optional[bytes] = ...) -> None: ...

class CommandColumns(_message.Message):
    __slots__ = ("kinds", "arguments", "numbers")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    kinds: bytes
    arguments: _containers.RepeatedScalarFieldContainer[bytes]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kinds: _Optional[bytes] = ..., arguments: _Optional[_Iterable[bytes]] = ..., numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class TransactionRequest(_message.Message):
    __slots__ = ("compare_keys", "compare_operators", "compare_values", "then", "otherwise", "freshness", "request_id")
    COMPARE_KEYS_FIELD_NUMBER: _ClassVar[int]
    COMPARE_OPERATORS_FIELD_NUMBER: _ClassVar[int]
    COMPARE_VALUES_FIELD_NUMBER: _ClassVar[int]
    THEN_FIELD_NUMBER: _ClassVar[int]
    OTHERWISE_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    compare_keys: _containers.RepeatedScalarFieldContainer[bytes]
    compare_operators: bytes
    compare_values: _containers.RepeatedScalarFieldContainer[bytes]
    then: CommandColumns
    otherwise: CommandColumns
    freshness: Freshness
    request_id: bytes
    def __init__(self, compare_keys: _Optional[_Iterable[bytes]] = ..., compare_operators: _Optional[bytes] = ..., compare_values: _Optional[_Iterable[bytes]] = ..., then: _Optional[_Union[CommandColumns, _Mapping]] = ..., otherwise: _Optional[_Union[CommandColumns, _Mapping]] = ..., freshness: _Optional[_Union[Freshness, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class TransactionReply(_message.Message):
    __slots__ = ("header", "held", "statuses", "keys", "values", "counts")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    held: bool
    statuses: bytes
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., held: _Optional[bool] = ..., statuses: _Optional[bytes] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class AddRequest(_message.Message):
    __slots__ = ("key", "delta", "request_id")
    KEY_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    delta: bytes
    request_id: bytes
    def __init__(self, key: _Optional[bytes] = ..., delta: _Optional[bytes] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class AddReply(_message.Message):
    __slots__ = ("header", "value")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    header: Header
    value: bytes
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., value: _Optional[bytes] = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    def __init__(self, key: _Optional[bytes] = ...) -> None: ...

class RemoveReply(_message.Message):
    __slots__ = ("header", "removed")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    header: Header
    removed: bool
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., removed: _Optional[bool] = ...) -> None: ...

class ExpireRequest(_message.Message):
    __slots__ = ("key", "ttl_ms")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    ttl_ms: int
    def __init__(self, key: _Optional[bytes] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class ExpireReply(_message.Message):
    __slots__ = ("header", "was_there")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    WAS_THERE_FIELD_NUMBER: _ClassVar[int]
    header: Header
    was_there: bool
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., was_there: _Optional[bool] = ...) -> None: ...

class TtlRequest(_message.Message):
    __slots__ = ("key", "freshness")
    KEY_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    freshness: Freshness
    def __init__(self, key: _Optional[bytes] = ..., freshness: _Optional[_Union[Freshness, _Mapping]] = ...) -> None: ...

class TtlReply(_message.Message):
    __slots__ = ("header", "remaining_ms")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    remaining_ms: int
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., remaining_ms: _Optional[int] = ...) -> None: ...

class MultiGetRequest(_message.Message):
    __slots__ = ("keys", "freshness")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    freshness: Freshness
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., freshness: _Optional[_Union[Freshness, _Mapping]] = ...) -> None: ...

class MultiGetReply(_message.Message):
    __slots__ = ("header", "values", "present")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    header: Header
    values: _containers.RepeatedScalarFieldContainer[bytes]
    present: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., values: _Optional[_Iterable[bytes]] = ..., present: _Optional[_Iterable[bool]] = ...) -> None: ...

class MultiPutRequest(_message.Message):
    __slots__ = ("keys", "values", "ttl_ms", "keep_ttl")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    KEEP_TTL_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    ttl_ms: int
    keep_ttl: bool
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., ttl_ms: _Optional[int] = ..., keep_ttl: _Optional[bool] = ...) -> None: ...

class MultiPutReply(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: Header
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ...) -> None: ...

class RemoveRangeRequest(_message.Message):
    __slots__ = ("first", "last", "prefix")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    prefix: bytes
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., prefix: _Optional[bytes] = ...) -> None: ...

class RemoveRangeReply(_message.Message):
    __slots__ = ("header", "removed")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    header: Header
    removed: int
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., removed: _Optional[int] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("first", "last", "limit", "reverse", "chunk_bytes", "prefix", "keys_only", "one_chunk", "freshness")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    ONE_CHUNK_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    limit: int
    reverse: bool
    chunk_bytes: int
    prefix: bytes
    keys_only: bool
    one_chunk: bool
    freshness: Freshness
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., limit: _Optional[int] = ..., reverse: _Optional[bool] = ..., chunk_bytes: _Optional[int] = ..., prefix: _Optional[bytes] = ..., keys_only: _Optional[bool] = ..., one_chunk: _Optional[bool] = ..., freshness: _Optional[_Union[Freshness, _Mapping]] = ...) -> None: ...

class ScanReply(_message.Message):
    __slots__ = ("header", "keys", "values", "resume_key")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    RESUME_KEY_FIELD_NUMBER: _ClassVar[int]
    header: Header
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    resume_key: bytes
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., resume_key: _Optional[bytes] = ...) -> None: ...

class CountRequest(_message.Message):
    __slots__ = ("first", "last", "prefix", "freshness")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    prefix: bytes
    freshness: Freshness
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., prefix: _Optional[bytes] = ..., freshness: _Optional[_Union[Freshness, _Mapping]] = ...) -> None: ...

class CountReply(_message.Message):
    __slots__ = ("header", "count")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    header: Header
    count: int
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., count: _Optional[int] = ...) -> None: ...

class SplitsRequest(_message.Message):
    __slots__ = ("first", "last", "prefix", "count")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    prefix: bytes
    count: int
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., prefix: _Optional[bytes] = ..., count: _Optional[int] = ...) -> None: ...

class SplitsReply(_message.Message):
    __slots__ = ("header", "keys")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ("batch", "kinds", "arguments", "numbers", "freshness", "fresh_commands", "fresh_levels", "trace_parent", "trace_state", "once_commands", "request_ids", "batch_id", "batch_positions")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_FIELD_NUMBER: _ClassVar[int]
    FRESH_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    FRESH_LEVELS_FIELD_NUMBER: _ClassVar[int]
    TRACE_PARENT_FIELD_NUMBER: _ClassVar[int]
    TRACE_STATE_FIELD_NUMBER: _ClassVar[int]
    ONCE_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    batch: int
    kinds: bytes
    arguments: _containers.RepeatedScalarFieldContainer[bytes]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    freshness: Freshness
    fresh_commands: _containers.RepeatedScalarFieldContainer[int]
    fresh_levels: _containers.RepeatedCompositeFieldContainer[Freshness]
    trace_parent: bytes
    trace_state: bytes
    once_commands: _containers.RepeatedScalarFieldContainer[int]
    request_ids: _containers.RepeatedScalarFieldContainer[bytes]
    batch_id: bytes
    batch_positions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, batch: _Optional[int] = ..., kinds: _Optional[bytes] = ..., arguments: _Optional[_Iterable[bytes]] = ..., numbers: _Optional[_Iterable[int]] = ..., freshness: _Optional[_Union[Freshness, _Mapping]] = ..., fresh_commands: _Optional[_Iterable[int]] = ..., fresh_levels: _Optional[_Iterable[_Union[Freshness, _Mapping]]] = ..., trace_parent: _Optional[bytes] = ..., trace_state: _Optional[bytes] = ..., once_commands: _Optional[_Iterable[int]] = ..., request_ids: _Optional[_Iterable[bytes]] = ..., batch_id: _Optional[bytes] = ..., batch_positions: _Optional[_Iterable[int]] = ...) -> None: ...

class ExecuteReply(_message.Message):
    __slots__ = ("batch", "statuses", "keys", "values", "counts", "errors", "server_id", "revision", "more", "token", "age_ms")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    batch: int
    statuses: bytes
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    counts: _containers.RepeatedScalarFieldContainer[int]
    errors: _containers.RepeatedCompositeFieldContainer[CommandError]
    server_id: int
    revision: int
    more: bool
    token: bytes
    age_ms: int
    def __init__(self, batch: _Optional[int] = ..., statuses: _Optional[bytes] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., counts: _Optional[_Iterable[int]] = ..., errors: _Optional[_Iterable[_Union[CommandError, _Mapping]]] = ..., server_id: _Optional[int] = ..., revision: _Optional[int] = ..., more: _Optional[bool] = ..., token: _Optional[bytes] = ..., age_ms: _Optional[int] = ...) -> None: ...

class CommandError(_message.Message):
    __slots__ = ("code", "message", "reason", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    reason: str
    facts: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., reason: _Optional[str] = ..., facts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("first", "last", "rows", "after", "progress_ms", "freshness")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_MS_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    rows: bool
    after: Header
    progress_ms: int
    freshness: Freshness
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., rows: _Optional[bool] = ..., after: _Optional[_Union[Header, _Mapping]] = ..., progress_ms: _Optional[int] = ..., freshness: _Optional[_Union[Freshness, _Mapping]] = ...) -> None: ...

class WatchReply(_message.Message):
    __slots__ = ("header", "keys", "values", "ready", "changes", "origins")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    ready: bool
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    origins: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., ready: _Optional[bool] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., origins: _Optional[_Iterable[bytes]] = ...) -> None: ...

class WatchedRange(_message.Message):
    __slots__ = ("first", "last", "rows", "after")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    rows: bool
    after: Header
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., rows: _Optional[bool] = ..., after: _Optional[_Union[Header, _Mapping]] = ...) -> None: ...

class WatchRangesRequest(_message.Message):
    __slots__ = ("ranges", "progress_ms", "freshness")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_MS_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[WatchedRange]
    progress_ms: int
    freshness: Freshness
    def __init__(self, ranges: _Optional[_Iterable[_Union[WatchedRange, _Mapping]]] = ..., progress_ms: _Optional[int] = ..., freshness: _Optional[_Union[Freshness, _Mapping]] = ...) -> None: ...

class WatchRangesReply(_message.Message):
    __slots__ = ("header", "ready", "origins", "ranges", "counts", "keys", "values", "olds", "kinds", "ended", "reasons")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    OLDS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    ready: bool
    origins: _containers.RepeatedScalarFieldContainer[bytes]
    ranges: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    olds: _containers.RepeatedScalarFieldContainer[bytes]
    kinds: bytes
    ended: _containers.RepeatedScalarFieldContainer[int]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., ready: _Optional[bool] = ..., origins: _Optional[_Iterable[bytes]] = ..., ranges: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., olds: _Optional[_Iterable[bytes]] = ..., kinds: _Optional[bytes] = ..., ended: _Optional[_Iterable[int]] = ..., reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("key", "old", "new", "reason")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WRITTEN: _ClassVar[Change.Reason]
        EXPIRED: _ClassVar[Change.Reason]
    WRITTEN: Change.Reason
    EXPIRED: Change.Reason
    KEY_FIELD_NUMBER: _ClassVar[int]
    OLD_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    old: bytes
    new: bytes
    reason: Change.Reason
    def __init__(self, key: _Optional[bytes] = ..., old: _Optional[bytes] = ..., new: _Optional[bytes] = ..., reason: _Optional[_Union[Change.Reason, str]] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("name", "text", "warnings", "notes", "table", "source_tables", "maintenance")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TABLES_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    notes: _containers.RepeatedCompositeFieldContainer[Note]
    table: bytes
    source_tables: _containers.RepeatedScalarFieldContainer[bytes]
    maintenance: str
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., notes: _Optional[_Iterable[_Union[Note, _Mapping]]] = ..., table: _Optional[bytes] = ..., source_tables: _Optional[_Iterable[bytes]] = ..., maintenance: _Optional[str] = ...) -> None: ...

class Note(_message.Message):
    __slots__ = ("text", "first", "last")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    text: str
    first: bytes
    last: bytes
    def __init__(self, text: _Optional[str] = ..., first: _Optional[bytes] = ..., last: _Optional[bytes] = ...) -> None: ...

class AddJoinRequest(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class AddJoinReply(_message.Message):
    __slots__ = ("header", "joins")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    joins: _containers.RepeatedCompositeFieldContainer[Join]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., joins: _Optional[_Iterable[_Union[Join, _Mapping]]] = ...) -> None: ...

class CheckJoinRequest(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class CheckJoinReply(_message.Message):
    __slots__ = ("header", "problem", "joins")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    problem: JoinProblem
    joins: _containers.RepeatedCompositeFieldContainer[CheckedJoin]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., problem: _Optional[_Union[JoinProblem, _Mapping]] = ..., joins: _Optional[_Iterable[_Union[CheckedJoin, _Mapping]]] = ...) -> None: ...

class JoinProblem(_message.Message):
    __slots__ = ("reason", "hint", "start", "end", "line", "column")
    REASON_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    reason: str
    hint: str
    start: int
    end: int
    line: int
    column: int
    def __init__(self, reason: _Optional[str] = ..., hint: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., line: _Optional[int] = ..., column: _Optional[int] = ...) -> None: ...

class CheckedJoin(_message.Message):
    __slots__ = ("explanation", "is_installed", "looked_at", "matching", "keys", "values")
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    IS_INSTALLED_FIELD_NUMBER: _ClassVar[int]
    LOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    MATCHING_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    explanation: JoinExplanation
    is_installed: bool
    looked_at: _containers.RepeatedScalarFieldContainer[int]
    matching: _containers.RepeatedScalarFieldContainer[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, explanation: _Optional[_Union[JoinExplanation, _Mapping]] = ..., is_installed: _Optional[bool] = ..., looked_at: _Optional[_Iterable[int]] = ..., matching: _Optional[_Iterable[int]] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ...) -> None: ...

class DropJoinRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DropJoinReply(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: Header
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ...) -> None: ...

class Replacement(_message.Message):
    __slots__ = ("id", "join", "text", "ranges_built", "ranges_expected", "age_s", "in_place", "ended", "waits_for")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RANGES_BUILT_FIELD_NUMBER: _ClassVar[int]
    RANGES_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    id: int
    join: str
    text: str
    ranges_built: int
    ranges_expected: int
    age_s: float
    in_place: bool
    ended: str
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[int] = ..., join: _Optional[str] = ..., text: _Optional[str] = ..., ranges_built: _Optional[int] = ..., ranges_expected: _Optional[int] = ..., age_s: _Optional[float] = ..., in_place: _Optional[bool] = ..., ended: _Optional[str] = ..., waits_for: _Optional[_Iterable[str]] = ...) -> None: ...

class ReplaceJoinRequest(_message.Message):
    __slots__ = ("name", "text", "undo")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    undo: bool
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ..., undo: _Optional[bool] = ...) -> None: ...

class ReplaceJoinReply(_message.Message):
    __slots__ = ("header", "replacement")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    header: Header
    replacement: Replacement
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., replacement: _Optional[_Union[Replacement, _Mapping]] = ...) -> None: ...

class ListReplacementsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListReplacementsReply(_message.Message):
    __slots__ = ("header", "replacements")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    replacements: _containers.RepeatedCompositeFieldContainer[Replacement]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., replacements: _Optional[_Iterable[_Union[Replacement, _Mapping]]] = ...) -> None: ...

class EndReplacementRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class EndReplacementReply(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: Header
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ...) -> None: ...

class ListJoinsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListJoinsReply(_message.Message):
    __slots__ = ("header", "joins")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    joins: _containers.RepeatedCompositeFieldContainer[Join]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., joins: _Optional[_Iterable[_Union[Join, _Mapping]]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("join", "range")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    join: str
    range: Range
    def __init__(self, join: _Optional[str] = ..., range: _Optional[_Union[Range, _Mapping]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ...) -> None: ...

class ExplainReply(_message.Message):
    __slots__ = ("header", "join", "range")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    header: Header
    join: JoinExplanation
    range: RangeExplanation
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., join: _Optional[_Union[JoinExplanation, _Mapping]] = ..., range: _Optional[_Union[RangeExplanation, _Mapping]] = ...) -> None: ...

class JoinExplanation(_message.Message):
    __slots__ = ("name", "text", "maintenance", "is_unique", "sources", "warnings", "notes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    IS_UNIQUE_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    maintenance: str
    is_unique: bool
    sources: _containers.RepeatedCompositeFieldContainer[SourceExplanation]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    notes: _containers.RepeatedCompositeFieldContainer[Note]
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ..., maintenance: _Optional[str] = ..., is_unique: _Optional[bool] = ..., sources: _Optional[_Iterable[_Union[SourceExplanation, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., notes: _Optional[_Iterable[_Union[Note, _Mapping]]] = ...) -> None: ...

class SourceExplanation(_message.Message):
    __slots__ = ("source", "reads", "narrowed_by", "binds", "upkeep", "computed_by", "index", "misfits")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    NARROWED_BY_FIELD_NUMBER: _ClassVar[int]
    BINDS_FIELD_NUMBER: _ClassVar[int]
    UPKEEP_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_BY_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MISFITS_FIELD_NUMBER: _ClassVar[int]
    source: str
    reads: str
    narrowed_by: str
    binds: _containers.RepeatedScalarFieldContainer[str]
    upkeep: str
    computed_by: _containers.RepeatedScalarFieldContainer[str]
    index: IndexExplanation
    misfits: _containers.RepeatedCompositeFieldContainer[MisfitExplanation]
    def __init__(self, source: _Optional[str] = ..., reads: _Optional[str] = ..., narrowed_by: _Optional[str] = ..., binds: _Optional[_Iterable[str]] = ..., upkeep: _Optional[str] = ..., computed_by: _Optional[_Iterable[str]] = ..., index: _Optional[_Union[IndexExplanation, _Mapping]] = ..., misfits: _Optional[_Iterable[_Union[MisfitExplanation, _Mapping]]] = ...) -> None: ...

class IndexExplanation(_message.Message):
    __slots__ = ("order", "is_made", "rows", "bytes")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    IS_MADE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    order: str
    is_made: bool
    rows: int
    bytes: int
    def __init__(self, order: _Optional[str] = ..., is_made: _Optional[bool] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class MisfitExplanation(_message.Message):
    __slots__ = ("reason", "count", "key")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    reason: str
    count: int
    key: bytes
    def __init__(self, reason: _Optional[str] = ..., count: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class InvalidateRequest(_message.Message):
    __slots__ = ("join", "range")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    join: str
    range: Range
    def __init__(self, join: _Optional[str] = ..., range: _Optional[_Union[Range, _Mapping]] = ...) -> None: ...

class InvalidateReply(_message.Message):
    __slots__ = ("header", "contexts")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    contexts: int
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., contexts: _Optional[int] = ...) -> None: ...

class RangeExplanation(_message.Message):
    __slots__ = ("stored_keys", "joins", "dropped", "freshness", "notes")
    STORED_KEYS_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    stored_keys: int
    joins: _containers.RepeatedCompositeFieldContainer[CoverageExplanation]
    dropped: _containers.RepeatedCompositeFieldContainer[DroppedExplanation]
    freshness: str
    notes: _containers.RepeatedCompositeFieldContainer[Note]
    def __init__(self, stored_keys: _Optional[int] = ..., joins: _Optional[_Iterable[_Union[CoverageExplanation, _Mapping]]] = ..., dropped: _Optional[_Iterable[_Union[DroppedExplanation, _Mapping]]] = ..., freshness: _Optional[str] = ..., notes: _Optional[_Iterable[_Union[Note, _Mapping]]] = ...) -> None: ...

class CoverageExplanation(_message.Message):
    __slots__ = ("join", "parts", "next_read")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_READ_FIELD_NUMBER: _ClassVar[int]
    join: str
    parts: _containers.RepeatedCompositeFieldContainer[PartExplanation]
    next_read: str
    def __init__(self, join: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[PartExplanation, _Mapping]]] = ..., next_read: _Optional[str] = ...) -> None: ...

class DroppedExplanation(_message.Message):
    __slots__ = ("name", "first", "last", "reason", "ago_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AGO_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    first: bytes
    last: bytes
    reason: str
    ago_s: float
    def __init__(self, name: _Optional[str] = ..., first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., reason: _Optional[str] = ..., ago_s: _Optional[float] = ...) -> None: ...

class PartExplanation(_message.Message):
    __slots__ = ("first", "last", "state", "rows", "updaters", "log_entries")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    UPDATERS_FIELD_NUMBER: _ClassVar[int]
    LOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    state: str
    rows: int
    updaters: int
    log_entries: int
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., state: _Optional[str] = ..., rows: _Optional[int] = ..., updaters: _Optional[int] = ..., log_entries: _Optional[int] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("with_ranges",)
    WITH_RANGES_FIELD_NUMBER: _ClassVar[int]
    with_ranges: bool
    def __init__(self, with_ranges: _Optional[bool] = ...) -> None: ...

class StatsReply(_message.Message):
    __slots__ = ("header", "loose_keys", "tables", "joins", "databases", "memory", "peers", "subscription_bounds", "version", "expiring_keys", "expired_keys", "calls", "call_bounds_s", "commands", "heat")
    class CommandsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LOOSE_KEYS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    DATABASES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPIRING_KEYS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_KEYS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CALL_BOUNDS_S_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    HEAT_FIELD_NUMBER: _ClassVar[int]
    header: Header
    loose_keys: int
    tables: _containers.RepeatedCompositeFieldContainer[TableStatistics]
    joins: _containers.RepeatedCompositeFieldContainer[JoinStatistics]
    databases: _containers.RepeatedCompositeFieldContainer[BackingStatistics]
    memory: MemoryStatistics
    peers: _containers.RepeatedCompositeFieldContainer[PeerStatistics]
    subscription_bounds: int
    version: str
    expiring_keys: int
    expired_keys: int
    calls: _containers.RepeatedCompositeFieldContainer[CallStatistics]
    call_bounds_s: _containers.RepeatedScalarFieldContainer[float]
    commands: _containers.ScalarMap[str, int]
    heat: HeatStatistics
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., loose_keys: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[TableStatistics, _Mapping]]] = ..., joins: _Optional[_Iterable[_Union[JoinStatistics, _Mapping]]] = ..., databases: _Optional[_Iterable[_Union[BackingStatistics, _Mapping]]] = ..., memory: _Optional[_Union[MemoryStatistics, _Mapping]] = ..., peers: _Optional[_Iterable[_Union[PeerStatistics, _Mapping]]] = ..., subscription_bounds: _Optional[int] = ..., version: _Optional[str] = ..., expiring_keys: _Optional[int] = ..., expired_keys: _Optional[int] = ..., calls: _Optional[_Iterable[_Union[CallStatistics, _Mapping]]] = ..., call_bounds_s: _Optional[_Iterable[float]] = ..., commands: _Optional[_Mapping[str, int]] = ..., heat: _Optional[_Union[HeatStatistics, _Mapping]] = ...) -> None: ...

class HeatStatistics(_message.Message):
    __slots__ = ("cores", "groups", "ranges")
    CORES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    cores: float
    groups: _containers.RepeatedCompositeFieldContainer[GroupHeat]
    ranges: _containers.RepeatedCompositeFieldContainer[RangeHeat]
    def __init__(self, cores: _Optional[float] = ..., groups: _Optional[_Iterable[_Union[GroupHeat, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[RangeHeat, _Mapping]]] = ...) -> None: ...

class GroupHeat(_message.Message):
    __slots__ = ("group", "cores", "cores_error", "reads", "writes")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    CORES_ERROR_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    group: bytes
    cores: float
    cores_error: float
    reads: float
    writes: float
    def __init__(self, group: _Optional[bytes] = ..., cores: _Optional[float] = ..., cores_error: _Optional[float] = ..., reads: _Optional[float] = ..., writes: _Optional[float] = ...) -> None: ...

class RangeHeat(_message.Message):
    __slots__ = ("first", "last", "keys", "bytes", "cores", "reads", "writes")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    keys: int
    bytes: int
    cores: float
    reads: float
    writes: float
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., keys: _Optional[int] = ..., bytes: _Optional[int] = ..., cores: _Optional[float] = ..., reads: _Optional[float] = ..., writes: _Optional[float] = ...) -> None: ...

class CallStatistics(_message.Message):
    __slots__ = ("method", "calls", "failed", "seconds", "buckets")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    method: str
    calls: int
    failed: int
    seconds: float
    buckets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, method: _Optional[str] = ..., calls: _Optional[int] = ..., failed: _Optional[int] = ..., seconds: _Optional[float] = ..., buckets: _Optional[_Iterable[int]] = ...) -> None: ...

class PeerStatistics(_message.Message):
    __slots__ = ("id", "address", "lag_events", "messages", "changes", "bytes", "reloads", "subscriptions")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LAG_EVENTS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RELOADS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    address: str
    lag_events: int
    messages: int
    changes: int
    bytes: int
    reloads: int
    subscriptions: int
    def __init__(self, id: _Optional[str] = ..., address: _Optional[str] = ..., lag_events: _Optional[int] = ..., messages: _Optional[int] = ..., changes: _Optional[int] = ..., bytes: _Optional[int] = ..., reloads: _Optional[int] = ..., subscriptions: _Optional[int] = ...) -> None: ...

class BackingStatistics(_message.Message):
    __slots__ = ("mode", "state", "error", "position", "lag", "age_s", "loaded_ranges", "feed_failures", "reloads", "flights", "ranges", "rows", "changes", "changes_applied", "writes", "name")
    MODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    LOADED_RANGES_FIELD_NUMBER: _ClassVar[int]
    FEED_FAILURES_FIELD_NUMBER: _ClassVar[int]
    RELOADS_FIELD_NUMBER: _ClassVar[int]
    FLIGHTS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_APPLIED_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    mode: str
    state: str
    error: str
    position: int
    lag: int
    age_s: float
    loaded_ranges: int
    feed_failures: int
    reloads: int
    flights: int
    ranges: int
    rows: int
    changes: int
    changes_applied: int
    writes: int
    name: str
    def __init__(self, mode: _Optional[str] = ..., state: _Optional[str] = ..., error: _Optional[str] = ..., position: _Optional[int] = ..., lag: _Optional[int] = ..., age_s: _Optional[float] = ..., loaded_ranges: _Optional[int] = ..., feed_failures: _Optional[int] = ..., reloads: _Optional[int] = ..., flights: _Optional[int] = ..., ranges: _Optional[int] = ..., rows: _Optional[int] = ..., changes: _Optional[int] = ..., changes_applied: _Optional[int] = ..., writes: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class MemoryStatistics(_message.Message):
    __slots__ = ("limit_bytes", "total_bytes", "stored_bytes", "row_bytes", "context_bytes", "updater_bytes", "log_bytes", "state_bytes", "watch_bytes", "evictions", "refusals", "loaded_bytes", "process_bytes", "process_limit_bytes", "index_bytes")
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPDATER_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    LOADED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    limit_bytes: int
    total_bytes: int
    stored_bytes: int
    row_bytes: int
    context_bytes: int
    updater_bytes: int
    log_bytes: int
    state_bytes: int
    watch_bytes: int
    evictions: int
    refusals: int
    loaded_bytes: int
    process_bytes: int
    process_limit_bytes: int
    index_bytes: int
    def __init__(self, limit_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., row_bytes: _Optional[int] = ..., context_bytes: _Optional[int] = ..., updater_bytes: _Optional[int] = ..., log_bytes: _Optional[int] = ..., state_bytes: _Optional[int] = ..., watch_bytes: _Optional[int] = ..., evictions: _Optional[int] = ..., refusals: _Optional[int] = ..., loaded_bytes: _Optional[int] = ..., process_bytes: _Optional[int] = ..., process_limit_bytes: _Optional[int] = ..., index_bytes: _Optional[int] = ...) -> None: ...

class TableStatistics(_message.Message):
    __slots__ = ("table", "keys", "key_bytes", "value_bytes", "groups")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KEY_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    table: bytes
    keys: int
    key_bytes: int
    value_bytes: int
    groups: int
    def __init__(self, table: _Optional[bytes] = ..., keys: _Optional[int] = ..., key_bytes: _Optional[int] = ..., value_bytes: _Optional[int] = ..., groups: _Optional[int] = ...) -> None: ...

class JoinStatistics(_message.Message):
    __slots__ = ("join", "rows", "key_bytes", "contexts", "status_ranges", "updaters", "log_entries", "hits", "computed_ranges", "rows_computed", "log_applied", "invalidations", "not_a_number", "age_s", "misfits", "largest", "hottest")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    KEY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    STATUS_RANGES_FIELD_NUMBER: _ClassVar[int]
    UPDATERS_FIELD_NUMBER: _ClassVar[int]
    LOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_RANGES_FIELD_NUMBER: _ClassVar[int]
    ROWS_COMPUTED_FIELD_NUMBER: _ClassVar[int]
    LOG_APPLIED_FIELD_NUMBER: _ClassVar[int]
    INVALIDATIONS_FIELD_NUMBER: _ClassVar[int]
    NOT_A_NUMBER_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    MISFITS_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    HOTTEST_FIELD_NUMBER: _ClassVar[int]
    join: str
    rows: int
    key_bytes: int
    contexts: int
    status_ranges: int
    updaters: int
    log_entries: int
    hits: int
    computed_ranges: int
    rows_computed: int
    log_applied: int
    invalidations: int
    not_a_number: int
    age_s: float
    misfits: int
    largest: _containers.RepeatedCompositeFieldContainer[ContextStatistics]
    hottest: _containers.RepeatedCompositeFieldContainer[ContextStatistics]
    def __init__(self, join: _Optional[str] = ..., rows: _Optional[int] = ..., key_bytes: _Optional[int] = ..., contexts: _Optional[int] = ..., status_ranges: _Optional[int] = ..., updaters: _Optional[int] = ..., log_entries: _Optional[int] = ..., hits: _Optional[int] = ..., computed_ranges: _Optional[int] = ..., rows_computed: _Optional[int] = ..., log_applied: _Optional[int] = ..., invalidations: _Optional[int] = ..., not_a_number: _Optional[int] = ..., age_s: _Optional[float] = ..., misfits: _Optional[int] = ..., largest: _Optional[_Iterable[_Union[ContextStatistics, _Mapping]]] = ..., hottest: _Optional[_Iterable[_Union[ContextStatistics, _Mapping]]] = ...) -> None: ...

class ContextStatistics(_message.Message):
    __slots__ = ("prefix", "rows", "hits")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    prefix: bytes
    rows: int
    hits: int
    def __init__(self, prefix: _Optional[bytes] = ..., rows: _Optional[int] = ..., hits: _Optional[int] = ...) -> None: ...

class SlowCallsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SlowCallsReply(_message.Message):
    __slots__ = ("header", "slow_ms", "calls")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SLOW_MS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    slow_ms: float
    calls: _containers.RepeatedCompositeFieldContainer[SlowCall]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., slow_ms: _Optional[float] = ..., calls: _Optional[_Iterable[_Union[SlowCall, _Mapping]]] = ...) -> None: ...

class SlowCall(_message.Message):
    __slots__ = ("at_s", "request_id", "method", "code", "ms", "key", "first", "last", "rows", "rows_computed", "commands", "kinds", "failed", "prefix")
    class KindsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    AT_S_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROWS_COMPUTED_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    request_id: str
    method: str
    code: str
    ms: float
    key: str
    first: str
    last: str
    rows: int
    rows_computed: int
    commands: int
    kinds: _containers.ScalarMap[str, int]
    failed: int
    prefix: str
    def __init__(self, at_s: _Optional[float] = ..., request_id: _Optional[str] = ..., method: _Optional[str] = ..., code: _Optional[str] = ..., ms: _Optional[float] = ..., key: _Optional[str] = ..., first: _Optional[str] = ..., last: _Optional[str] = ..., rows: _Optional[int] = ..., rows_computed: _Optional[int] = ..., commands: _Optional[int] = ..., kinds: _Optional[_Mapping[str, int]] = ..., failed: _Optional[int] = ..., prefix: _Optional[str] = ...) -> None: ...

class SaveSnapshotRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SaveSnapshotReply(_message.Message):
    __slots__ = ("header", "path", "key_count", "range_count", "backed_key_count", "file_bytes")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    KEY_COUNT_FIELD_NUMBER: _ClassVar[int]
    RANGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BACKED_KEY_COUNT_FIELD_NUMBER: _ClassVar[int]
    FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    header: Header
    path: str
    key_count: int
    range_count: int
    backed_key_count: int
    file_bytes: int
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., path: _Optional[str] = ..., key_count: _Optional[int] = ..., range_count: _Optional[int] = ..., backed_key_count: _Optional[int] = ..., file_bytes: _Optional[int] = ...) -> None: ...

class RestoreSnapshotRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RestoreSnapshotReply(_message.Message):
    __slots__ = ("header", "path", "key_count", "saved_s")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    KEY_COUNT_FIELD_NUMBER: _ClassVar[int]
    SAVED_S_FIELD_NUMBER: _ClassVar[int]
    header: Header
    path: str
    key_count: int
    saved_s: float
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., path: _Optional[str] = ..., key_count: _Optional[int] = ..., saved_s: _Optional[float] = ...) -> None: ...

class SnapshotBlock(_message.Message):
    __slots__ = ("head", "keys", "values", "end", "deadlines")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    DEADLINES_FIELD_NUMBER: _ClassVar[int]
    head: SnapshotHead
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    end: SnapshotEnd
    deadlines: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, head: _Optional[_Union[SnapshotHead, _Mapping]] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., end: _Optional[_Union[SnapshotEnd, _Mapping]] = ..., deadlines: _Optional[_Iterable[int]] = ...) -> None: ...

class SnapshotHead(_message.Message):
    __slots__ = ("format", "version", "saved_s", "server", "backing", "origin")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAVED_S_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    BACKING_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    format: str
    version: int
    saved_s: float
    server: str
    backing: _containers.RepeatedCompositeFieldContainer[SnapshotBacking]
    origin: int
    def __init__(self, format: _Optional[str] = ..., version: _Optional[int] = ..., saved_s: _Optional[float] = ..., server: _Optional[str] = ..., backing: _Optional[_Iterable[_Union[SnapshotBacking, _Mapping]]] = ..., origin: _Optional[int] = ...) -> None: ...

class SnapshotBacking(_message.Message):
    __slots__ = ("position", "mapping", "mark", "firsts", "lasts", "name")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAPPING_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    LASTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    position: int
    mapping: str
    mark: str
    firsts: _containers.RepeatedScalarFieldContainer[bytes]
    lasts: _containers.RepeatedScalarFieldContainer[bytes]
    name: str
    def __init__(self, position: _Optional[int] = ..., mapping: _Optional[str] = ..., mark: _Optional[str] = ..., firsts: _Optional[_Iterable[bytes]] = ..., lasts: _Optional[_Iterable[bytes]] = ..., name: _Optional[str] = ...) -> None: ...

class SnapshotEnd(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: int
    def __init__(self, keys: _Optional[int] = ...) -> None: ...

class Backfill(_message.Message):
    __slots__ = ("id", "join", "first", "last", "level", "revision", "sources", "ranges_loaded", "rows_loaded", "pieces_skipped", "record_keys", "record_bytes", "stage", "rows_expected", "age_s", "lease_s", "ended")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    RANGES_LOADED_FIELD_NUMBER: _ClassVar[int]
    ROWS_LOADED_FIELD_NUMBER: _ClassVar[int]
    PIECES_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    RECORD_KEYS_FIELD_NUMBER: _ClassVar[int]
    RECORD_BYTES_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ROWS_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    id: int
    join: str
    first: bytes
    last: bytes
    level: int
    revision: int
    sources: _containers.RepeatedCompositeFieldContainer[Range]
    ranges_loaded: int
    rows_loaded: int
    pieces_skipped: int
    record_keys: int
    record_bytes: int
    stage: str
    rows_expected: int
    age_s: float
    lease_s: float
    ended: str
    def __init__(self, id: _Optional[int] = ..., join: _Optional[str] = ..., first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., level: _Optional[int] = ..., revision: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., ranges_loaded: _Optional[int] = ..., rows_loaded: _Optional[int] = ..., pieces_skipped: _Optional[int] = ..., record_keys: _Optional[int] = ..., record_bytes: _Optional[int] = ..., stage: _Optional[str] = ..., rows_expected: _Optional[int] = ..., age_s: _Optional[float] = ..., lease_s: _Optional[float] = ..., ended: _Optional[str] = ...) -> None: ...

class BeginBackfillRequest(_message.Message):
    __slots__ = ("join", "first", "last", "level", "lease_s")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    join: str
    first: bytes
    last: bytes
    level: int
    lease_s: float
    def __init__(self, join: _Optional[str] = ..., first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., level: _Optional[int] = ..., lease_s: _Optional[float] = ...) -> None: ...

class BeginBackfillReply(_message.Message):
    __slots__ = ("header", "backfill")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    header: Header
    backfill: Backfill
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., backfill: _Optional[_Union[Backfill, _Mapping]] = ...) -> None: ...

class ReadBackfillRequest(_message.Message):
    __slots__ = ("id", "join", "first", "last", "digest_only")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    DIGEST_ONLY_FIELD_NUMBER: _ClassVar[int]
    id: int
    join: str
    first: bytes
    last: bytes
    digest_only: bool
    def __init__(self, id: _Optional[int] = ..., join: _Optional[str] = ..., first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., digest_only: _Optional[bool] = ...) -> None: ...

class ReadBackfillReply(_message.Message):
    __slots__ = ("header", "keys", "values", "resume_key", "row_count", "crc32_sum")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    RESUME_KEY_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    CRC32_SUM_FIELD_NUMBER: _ClassVar[int]
    header: Header
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    resume_key: bytes
    row_count: int
    crc32_sum: int
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., resume_key: _Optional[bytes] = ..., row_count: _Optional[int] = ..., crc32_sum: _Optional[int] = ...) -> None: ...

class LoadBackfillRequest(_message.Message):
    __slots__ = ("id", "join", "firsts", "lasts", "row_counts", "tails", "tail_at", "values", "value_at", "times", "source_keys", "source_key_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    LASTS_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNTS_FIELD_NUMBER: _ClassVar[int]
    TAILS_FIELD_NUMBER: _ClassVar[int]
    TAIL_AT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    VALUE_AT_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_KEYS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_KEY_AT_FIELD_NUMBER: _ClassVar[int]
    id: int
    join: str
    firsts: _containers.RepeatedScalarFieldContainer[bytes]
    lasts: _containers.RepeatedScalarFieldContainer[bytes]
    row_counts: _containers.RepeatedScalarFieldContainer[int]
    tails: _containers.RepeatedScalarFieldContainer[bytes]
    tail_at: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    value_at: _containers.RepeatedScalarFieldContainer[int]
    times: _containers.RepeatedScalarFieldContainer[int]
    source_keys: _containers.RepeatedScalarFieldContainer[bytes]
    source_key_at: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., join: _Optional[str] = ..., firsts: _Optional[_Iterable[bytes]] = ..., lasts: _Optional[_Iterable[bytes]] = ..., row_counts: _Optional[_Iterable[int]] = ..., tails: _Optional[_Iterable[bytes]] = ..., tail_at: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[bytes]] = ..., value_at: _Optional[_Iterable[int]] = ..., times: _Optional[_Iterable[int]] = ..., source_keys: _Optional[_Iterable[bytes]] = ..., source_key_at: _Optional[_Iterable[int]] = ...) -> None: ...

class LoadBackfillReply(_message.Message):
    __slots__ = ("header", "ranges_loaded", "rows_loaded", "pieces_skipped")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RANGES_LOADED_FIELD_NUMBER: _ClassVar[int]
    ROWS_LOADED_FIELD_NUMBER: _ClassVar[int]
    PIECES_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    header: Header
    ranges_loaded: int
    rows_loaded: int
    pieces_skipped: int
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., ranges_loaded: _Optional[int] = ..., rows_loaded: _Optional[int] = ..., pieces_skipped: _Optional[int] = ...) -> None: ...

class RenewBackfillRequest(_message.Message):
    __slots__ = ("id", "join", "stage", "rows_expected")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ROWS_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    id: int
    join: str
    stage: str
    rows_expected: int
    def __init__(self, id: _Optional[int] = ..., join: _Optional[str] = ..., stage: _Optional[str] = ..., rows_expected: _Optional[int] = ...) -> None: ...

class RenewBackfillReply(_message.Message):
    __slots__ = ("header", "backfill")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    header: Header
    backfill: Backfill
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., backfill: _Optional[_Union[Backfill, _Mapping]] = ...) -> None: ...

class EndBackfillRequest(_message.Message):
    __slots__ = ("id", "join", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: int
    join: str
    reason: str
    def __init__(self, id: _Optional[int] = ..., join: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class EndBackfillReply(_message.Message):
    __slots__ = ("header", "backfill")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    header: Header
    backfill: Backfill
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., backfill: _Optional[_Union[Backfill, _Mapping]] = ...) -> None: ...

class ListBackfillsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListBackfillsReply(_message.Message):
    __slots__ = ("header", "backfills")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BACKFILLS_FIELD_NUMBER: _ClassVar[int]
    header: Header
    backfills: _containers.RepeatedCompositeFieldContainer[Backfill]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., backfills: _Optional[_Iterable[_Union[Backfill, _Mapping]]] = ...) -> None: ...

class FollowClusterRequest(_message.Message):
    __slots__ = ("once", "with_joins", "differences")
    ONCE_FIELD_NUMBER: _ClassVar[int]
    WITH_JOINS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    once: bool
    with_joins: bool
    differences: bool
    def __init__(self, once: _Optional[bool] = ..., with_joins: _Optional[bool] = ..., differences: _Optional[bool] = ...) -> None: ...

class FollowClusterReply(_message.Message):
    __slots__ = ("header", "map", "servers", "is_difference", "gone")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    IS_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    header: Header
    map: ClusterMap
    servers: _containers.RepeatedCompositeFieldContainer[ClusterServer]
    is_difference: bool
    gone: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., map: _Optional[_Union[ClusterMap, _Mapping]] = ..., servers: _Optional[_Iterable[_Union[ClusterServer, _Mapping]]] = ..., is_difference: _Optional[bool] = ..., gone: _Optional[_Iterable[str]] = ...) -> None: ...

class ClusterMap(_message.Message):
    __slots__ = ("cluster", "version", "joins", "placements", "home_ranges", "replacement")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    HOME_RANGES_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    version: int
    joins: str
    placements: _containers.RepeatedCompositeFieldContainer[ClusterPlacement]
    home_ranges: _containers.RepeatedCompositeFieldContainer[ClusterHomeRange]
    replacement: ClusterReplacement
    def __init__(self, cluster: _Optional[str] = ..., version: _Optional[int] = ..., joins: _Optional[str] = ..., placements: _Optional[_Iterable[_Union[ClusterPlacement, _Mapping]]] = ..., home_ranges: _Optional[_Iterable[_Union[ClusterHomeRange, _Mapping]]] = ..., replacement: _Optional[_Union[ClusterReplacement, _Mapping]] = ...) -> None: ...

class ClusterReplacement(_message.Message):
    __slots__ = ("version", "old", "new", "in_place", "ended")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OLD_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    version: int
    old: str
    new: str
    in_place: bool
    ended: str
    def __init__(self, version: _Optional[int] = ..., old: _Optional[str] = ..., new: _Optional[str] = ..., in_place: _Optional[bool] = ..., ended: _Optional[str] = ...) -> None: ...

class ClusterPlacement(_message.Message):
    __slots__ = ("prefix", "level", "read_spread")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    READ_SPREAD_FIELD_NUMBER: _ClassVar[int]
    prefix: bytes
    level: int
    read_spread: int
    def __init__(self, prefix: _Optional[bytes] = ..., level: _Optional[int] = ..., read_spread: _Optional[int] = ...) -> None: ...

class ClusterHomeRange(_message.Message):
    __slots__ = ("first", "last", "group", "moves_to", "copies_to", "move")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MOVES_TO_FIELD_NUMBER: _ClassVar[int]
    COPIES_TO_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    last: bytes
    group: str
    moves_to: str
    copies_to: str
    move: int
    def __init__(self, first: _Optional[bytes] = ..., last: _Optional[bytes] = ..., group: _Optional[str] = ..., moves_to: _Optional[str] = ..., copies_to: _Optional[str] = ..., move: _Optional[int] = ...) -> None: ...

class ClusterServer(_message.Message):
    __slots__ = ("id", "address", "roles", "group", "weight", "zone", "state", "map_version", "prepared")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    id: str
    address: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    group: str
    weight: float
    zone: str
    state: str
    map_version: int
    prepared: int
    def __init__(self, id: _Optional[str] = ..., address: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ..., weight: _Optional[float] = ..., zone: _Optional[str] = ..., state: _Optional[str] = ..., map_version: _Optional[int] = ..., prepared: _Optional[int] = ...) -> None: ...

class PeerPlace(_message.Message):
    __slots__ = ("timeline", "position")
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    timeline: int
    position: int
    def __init__(self, timeline: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class PeerHistory(_message.Message):
    __slots__ = ("database", "timeline", "ends")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    database: bytes
    timeline: int
    ends: _containers.RepeatedCompositeFieldContainer[PeerPlace]
    def __init__(self, database: _Optional[bytes] = ..., timeline: _Optional[int] = ..., ends: _Optional[_Iterable[_Union[PeerPlace, _Mapping]]] = ...) -> None: ...

class PeerLoadRequest(_message.Message):
    __slots__ = ("version_min", "version_max", "firsts", "lasts", "feed", "released", "next", "number")
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    LASTS_FIELD_NUMBER: _ClassVar[int]
    FEED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    version_min: int
    version_max: int
    firsts: _containers.RepeatedScalarFieldContainer[bytes]
    lasts: _containers.RepeatedScalarFieldContainer[bytes]
    feed: int
    released: int
    next: _containers.RepeatedCompositeFieldContainer[PeerNextGroups]
    number: int
    def __init__(self, version_min: _Optional[int] = ..., version_max: _Optional[int] = ..., firsts: _Optional[_Iterable[bytes]] = ..., lasts: _Optional[_Iterable[bytes]] = ..., feed: _Optional[int] = ..., released: _Optional[int] = ..., next: _Optional[_Iterable[_Union[PeerNextGroups, _Mapping]]] = ..., number: _Optional[int] = ...) -> None: ...

class PeerNextGroups(_message.Message):
    __slots__ = ("prefix", "before", "after", "width", "first", "last")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    prefix: bytes
    before: bytes
    after: bytes
    width: int
    first: bytes
    last: bytes
    def __init__(self, prefix: _Optional[bytes] = ..., before: _Optional[bytes] = ..., after: _Optional[bytes] = ..., width: _Optional[int] = ..., first: _Optional[bytes] = ..., last: _Optional[bytes] = ...) -> None: ...

class PeerLoadReply(_message.Message):
    __slots__ = ("keys", "values", "place", "sequence", "more_firsts", "more_lasts", "number", "refusal", "deadlines")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIRSTS_FIELD_NUMBER: _ClassVar[int]
    MORE_LASTS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DEADLINES_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    place: PeerPlace
    sequence: int
    more_firsts: _containers.RepeatedScalarFieldContainer[bytes]
    more_lasts: _containers.RepeatedScalarFieldContainer[bytes]
    number: int
    refusal: CommandError
    deadlines: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., place: _Optional[_Union[PeerPlace, _Mapping]] = ..., sequence: _Optional[int] = ..., more_firsts: _Optional[_Iterable[bytes]] = ..., more_lasts: _Optional[_Iterable[bytes]] = ..., number: _Optional[int] = ..., refusal: _Optional[_Union[CommandError, _Mapping]] = ..., deadlines: _Optional[_Iterable[int]] = ...) -> None: ...

class PeerFeedRequest(_message.Message):
    __slots__ = ("hello", "released_firsts", "released_lasts", "hurry", "asked")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIRSTS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_LASTS_FIELD_NUMBER: _ClassVar[int]
    HURRY_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    hello: PeerFeedHello
    released_firsts: _containers.RepeatedScalarFieldContainer[bytes]
    released_lasts: _containers.RepeatedScalarFieldContainer[bytes]
    hurry: int
    asked: int
    def __init__(self, hello: _Optional[_Union[PeerFeedHello, _Mapping]] = ..., released_firsts: _Optional[_Iterable[bytes]] = ..., released_lasts: _Optional[_Iterable[bytes]] = ..., hurry: _Optional[int] = ..., asked: _Optional[int] = ...) -> None: ...

class PeerFeedHello(_message.Message):
    __slots__ = ("version_min", "version_max", "feed", "since", "database", "firsts", "lasts", "more", "id")
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    FEED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    LASTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    version_min: int
    version_max: int
    feed: int
    since: PeerPlace
    database: bytes
    firsts: _containers.RepeatedScalarFieldContainer[bytes]
    lasts: _containers.RepeatedScalarFieldContainer[bytes]
    more: bool
    id: str
    def __init__(self, version_min: _Optional[int] = ..., version_max: _Optional[int] = ..., feed: _Optional[int] = ..., since: _Optional[_Union[PeerPlace, _Mapping]] = ..., database: _Optional[bytes] = ..., firsts: _Optional[_Iterable[bytes]] = ..., lasts: _Optional[_Iterable[bytes]] = ..., more: _Optional[bool] = ..., id: _Optional[str] = ...) -> None: ...

class PeerFeedReply(_message.Message):
    __slots__ = ("version", "history", "reload_firsts", "reload_lasts", "reload_reason", "counts", "positions", "keys", "values", "present", "position", "age_ms", "shown", "partial", "answered", "sequences", "deadlines", "relays")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    RELOAD_FIRSTS_FIELD_NUMBER: _ClassVar[int]
    RELOAD_LASTS_FIELD_NUMBER: _ClassVar[int]
    RELOAD_REASON_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    DEADLINES_FIELD_NUMBER: _ClassVar[int]
    RELAYS_FIELD_NUMBER: _ClassVar[int]
    version: int
    history: PeerHistory
    reload_firsts: _containers.RepeatedScalarFieldContainer[bytes]
    reload_lasts: _containers.RepeatedScalarFieldContainer[bytes]
    reload_reason: str
    counts: _containers.RepeatedScalarFieldContainer[int]
    positions: _containers.RepeatedScalarFieldContainer[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    present: bytes
    position: int
    age_ms: int
    shown: _containers.RepeatedScalarFieldContainer[int]
    partial: bool
    answered: int
    sequences: _containers.RepeatedScalarFieldContainer[int]
    deadlines: _containers.RepeatedScalarFieldContainer[int]
    relays: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., history: _Optional[_Union[PeerHistory, _Mapping]] = ..., reload_firsts: _Optional[_Iterable[bytes]] = ..., reload_lasts: _Optional[_Iterable[bytes]] = ..., reload_reason: _Optional[str] = ..., counts: _Optional[_Iterable[int]] = ..., positions: _Optional[_Iterable[int]] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., present: _Optional[bytes] = ..., position: _Optional[int] = ..., age_ms: _Optional[int] = ..., shown: _Optional[_Iterable[int]] = ..., partial: _Optional[bool] = ..., answered: _Optional[int] = ..., sequences: _Optional[_Iterable[int]] = ..., deadlines: _Optional[_Iterable[int]] = ..., relays: _Optional[_Iterable[int]] = ...) -> None: ...

class PeerPositionRequest(_message.Message):
    __slots__ = ("latest",)
    LATEST_FIELD_NUMBER: _ClassVar[int]
    latest: bool
    def __init__(self, latest: _Optional[bool] = ...) -> None: ...

class PeerPositionReply(_message.Message):
    __slots__ = ("place", "version_min", "version_max", "tables")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    place: PeerPlace
    version_min: int
    version_max: int
    tables: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, place: _Optional[_Union[PeerPlace, _Mapping]] = ..., version_min: _Optional[int] = ..., version_max: _Optional[int] = ..., tables: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PeerWriteRequest(_message.Message):
    __slots__ = ("keys", "values", "present", "copies", "deadlines", "move", "rests")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    DEADLINES_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    RESTS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    present: bytes
    copies: bool
    deadlines: _containers.RepeatedScalarFieldContainer[int]
    move: int
    rests: bool
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., present: _Optional[bytes] = ..., copies: _Optional[bool] = ..., deadlines: _Optional[_Iterable[int]] = ..., move: _Optional[int] = ..., rests: _Optional[bool] = ...) -> None: ...

class PeerWriteReply(_message.Message):
    __slots__ = ("place", "absent")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    place: PeerPlace
    absent: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, place: _Optional[_Union[PeerPlace, _Mapping]] = ..., absent: _Optional[_Iterable[int]] = ...) -> None: ...

class PeerAddRequest(_message.Message):
    __slots__ = ("key", "delta", "request_id")
    KEY_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    delta: bytes
    request_id: bytes
    def __init__(self, key: _Optional[bytes] = ..., delta: _Optional[bytes] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class PeerAddReply(_message.Message):
    __slots__ = ("place", "value")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    place: PeerPlace
    value: bytes
    def __init__(self, place: _Optional[_Union[PeerPlace, _Mapping]] = ..., value: _Optional[bytes] = ...) -> None: ...

class PeerWriteIfRequest(_message.Message):
    __slots__ = ("key", "value", "condition", "expected", "request_id", "deadline")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    condition: int
    expected: bytes
    request_id: bytes
    deadline: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., condition: _Optional[int] = ..., expected: _Optional[bytes] = ..., request_id: _Optional[bytes] = ..., deadline: _Optional[int] = ...) -> None: ...

class PeerWriteIfReply(_message.Message):
    __slots__ = ("place", "met", "present")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    MET_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    place: PeerPlace
    met: bool
    present: bytes
    def __init__(self, place: _Optional[_Union[PeerPlace, _Mapping]] = ..., met: _Optional[bool] = ..., present: _Optional[bytes] = ...) -> None: ...

class PeerTransactionRequest(_message.Message):
    __slots__ = ("transaction", "reply_bytes_max", "rows_max")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    REPLY_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionRequest
    reply_bytes_max: int
    rows_max: int
    def __init__(self, transaction: _Optional[_Union[TransactionRequest, _Mapping]] = ..., reply_bytes_max: _Optional[int] = ..., rows_max: _Optional[int] = ...) -> None: ...

class PeerTransactionReply(_message.Message):
    __slots__ = ("place", "transaction")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    place: PeerPlace
    transaction: TransactionReply
    def __init__(self, place: _Optional[_Union[PeerPlace, _Mapping]] = ..., transaction: _Optional[_Union[TransactionReply, _Mapping]] = ...) -> None: ...
