"""How the contributions to one output key combine: the operators of value sources (paper §2.3, §3).

Each operator keeps a state for each output key, None while there are no contributions:

    copy     value-source key -> [contributions, value]    gives the value of the greatest key
    count    number of contributions
    sum, avg (numbers, their exact sum)
    min/max  a multiset in order

>>> total = make_aggregate(Operator.SUM)
>>> state = total.add(total.add(None, b"", b"1.50"), b"", b"x")
>>> total.result(state), total.remove(state, b"", b"1.50")
(b'1.5', None)
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context as DecimalContext
from decimal import Decimal, Inexact
from functools import partial
from typing import Final, Protocol, TypeVar, cast

from sortedcontainers import SortedDict

from pequod.language.decimals import mean, parse_number, print_number
from pequod.language.spec import Operator

# 10^18 numbers of 64 digits before and after the point still add up exactly; the trap proves it.
_EXACT = DecimalContext(prec=160, Emin=-999_999, Emax=999_999, traps=[Inexact])

#: The state of an aggregate for one output key.
S = TypeVar("S")
State = object


class NeverAddedError(LookupError):
    """A contribution is to be removed that was never added: the states do not follow from the sources."""


class Aggregate(Protocol[S]):
    """Combines contributions; a state belongs to its output key and may be changed in place.

    Requires:
        A removed contribution was added before, with the same key and value.

    Raises:
        NeverAddedError: It was not, if the state shows this.
    """

    #: The number of added contributions that a sum or a mean could not use.
    not_a_number: int
    #: The bytes of a state without contributions, and those of each contribution; of a row's own value.
    state_bytes: int
    contribution_bytes: int
    value_bytes: int

    def add(self, state: S | None, source_key: bytes, value: bytes, times: int = 1) -> S | None:
        """Return the state with ``times`` equal contributions more."""

    def remove(self, state: S | None, source_key: bytes, value: bytes) -> S | None:
        """Return the state with one contribution less, None if it was the last."""

    def result(self, state: S | None) -> bytes | None:
        """Return the output value, None if there is no output key."""


class _Copied:
    """How often one key of the value source contributes, and its value."""

    __slots__ = ("count", "value")

    def __init__(self, value: bytes, count: int) -> None:
        self.count = count
        self.value = value


class _Copy:
    """The value of the greatest value-source key; there are several keys only if the join is ambiguous."""

    not_a_number = 0
    state_bytes = 290
    contribution_bytes = 100
    value_bytes = 0

    def add(
        self, state: dict[bytes, _Copied] | None, source_key: bytes, value: bytes, times: int = 1
    ) -> dict[bytes, _Copied]:
        if state is None:
            return {source_key: _Copied(value, times)}
        entry = state.get(source_key)
        if entry is None:
            state[source_key] = _Copied(value, times)
        else:
            entry.count += times
            entry.value = value
        return state

    def remove(
        self, state: dict[bytes, _Copied] | None, source_key: bytes, _value: bytes
    ) -> dict[bytes, _Copied] | None:
        entry = None if state is None else state.get(source_key)
        if state is None or entry is None:
            raise NeverAddedError
        entry.count -= 1
        if entry.count == 0:
            del state[source_key]
        return state or None

    def result(self, state: dict[bytes, _Copied] | None) -> bytes | None:
        if state is None:
            return None
        return state[max(state)].value


class _Count:
    """The number of tuples of source keys that contribute."""

    not_a_number = 0
    state_bytes = 60
    contribution_bytes = 0
    value_bytes = 48

    def add(self, state: int | None, _source_key: bytes, _value: bytes, times: int = 1) -> int:
        return times if state is None else state + times

    def remove(self, state: int | None, _source_key: bytes, _value: bytes) -> int | None:
        if state is None:
            raise NeverAddedError
        return state - 1 or None

    def result(self, state: int | None) -> bytes | None:
        return None if state is None else b"%d" % state


class _Sum:
    """The exact sum of the values that are numbers."""

    state_bytes = 260
    contribution_bytes = 0
    value_bytes = 48

    def __init__(self) -> None:
        self.not_a_number = 0

    def add(
        self, state: tuple[int, Decimal] | None, _source_key: bytes, value: bytes, times: int = 1
    ) -> tuple[int, Decimal] | None:
        number = parse_number(value)
        if number is None:
            self.not_a_number += times
            return state
        if times > 1:
            number = _EXACT.multiply(number, Decimal(times))
        if state is None:
            return times, number
        return state[0] + times, _EXACT.add(state[1], number)

    def remove(self, state: tuple[int, Decimal] | None, _source_key: bytes, value: bytes) -> tuple[int, Decimal] | None:
        number = parse_number(value)
        if number is None:
            return state
        if state is None:
            raise NeverAddedError
        return None if state[0] == 1 else (state[0] - 1, _EXACT.subtract(state[1], number))

    def result(self, state: tuple[int, Decimal] | None) -> bytes | None:
        return None if state is None else print_number(state[1])


class _Average(_Sum):
    """The mean of the values that are numbers."""

    def result(self, state: tuple[int, Decimal] | None) -> bytes | None:
        return None if state is None else print_number(mean(state[1], state[0]))


#: Numbers come before text; equal numbers of different spelling are ordered by their bytes.
_Rank = tuple[int, Decimal, bytes]
_ZERO = Decimal(0)


def _rank(value: bytes) -> _Rank:
    number = parse_number(value)
    return (1, _ZERO, value) if number is None else (0, number, value)


class _Extreme:
    """The least (index 0) or greatest (index -1) value, from a multiset, so that an extreme can be removed."""

    not_a_number = 0
    state_bytes = 1900
    contribution_bytes = 245
    value_bytes = 0

    def __init__(self, index: int) -> None:
        self._index = index

    def add(
        self, state: SortedDict[_Rank, int] | None, _source_key: bytes, value: bytes, times: int = 1
    ) -> SortedDict[_Rank, int]:
        multiset: SortedDict[_Rank, int] = SortedDict() if state is None else state
        rank = _rank(value)
        multiset[rank] = multiset.get(rank, 0) + times
        return multiset

    def remove(
        self, state: SortedDict[_Rank, int] | None, _source_key: bytes, value: bytes
    ) -> SortedDict[_Rank, int] | None:
        rank = _rank(value)
        if state is None or rank not in state:
            raise NeverAddedError
        if state[rank] > 1:
            state[rank] -= 1
        else:
            del state[rank]
        return state or None

    def result(self, state: SortedDict[_Rank, int] | None) -> bytes | None:
        return None if state is None else state.peekitem(self._index)[0][2]


def make_aggregate(operator: Operator) -> Aggregate[State]:
    """Return the aggregate of a value source's operator, with its own counters."""
    return cast("Aggregate[State]", _MAKERS[operator]())


_MAKERS: Final[dict[Operator, Callable[[], object]]] = {
    Operator.COPY: _Copy,
    Operator.COUNT: _Count,
    Operator.SUM: _Sum,
    Operator.AVG: _Average,
    Operator.MIN: partial(_Extreme, 0),
    Operator.MAX: partial(_Extreme, -1),
}
