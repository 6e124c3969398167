r"""Values with fields of several sources: objects that checks give, on their way into the output's value.

    rated|<user>|<id> = copy r|<user>|<id> as {stars} check l|<id> as {name}

    r|ann|7  {"stars": 5}       gives   {"stars":5}
    l|7      {"name": "A|B"}    gives   {"name":"A|B"}    as slot <1> of the plain key    l|7|{"name":"A\x01B"}
    rated|ann|7                 has     {"stars":5,"name":"A|B"}

A slot ends at a delimiter, so the object has another byte in its place, one that JSON never has. A change of a field is
a change of the plain key: one goes, and another comes. So frames, logs and differences know nothing of fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pequod.language.forms import Misfit, json_text
from pequod.language.patterns import Environment
from pequod.language.spec import DELIMITER, JoinSpec, Pattern, Slot, SomeFields, Source

#: (values of slots, what the value source gives) -> the output's value.
Compose = Callable[[Environment, bytes], bytes]
#: What stands in the place of the delimiter: control characters are escaped in JSON.
STAND_IN: Final = b"\x01"


def object_slot(depth: int) -> Slot:
    """Return the slot of the object that a source gives; no slot of a join has such a name."""
    return Slot(str(depth))


def without_object(plain: Pattern) -> Pattern:
    """Return the pattern of plain keys without the object at their end."""
    *rest, literal, _ = plain.parts
    assert isinstance(literal, bytes), "a delimiter is before the object"
    return Pattern((*rest, literal[:-1]) if len(literal) > 1 else tuple(rest))


def hidden(given: bytes) -> bytes:
    """Return an object in JSON as a slot has it."""
    return given.replace(DELIMITER, STAND_IN)


def nulls(source: Source) -> bytes:
    """Return what a source gives where it has no record."""
    given = source.given
    assert isinstance(given, SomeFields), "`check_records` refuses all else"
    text = json_text(dict.fromkeys(name for name, _ in given.fields))
    assert not isinstance(text, Misfit), "a name is text"
    return text


def compile_composition(spec: JoinSpec, numbers: dict[str, int]) -> Compose | None:
    """Return what composes the output's values, the fields in the order of their sources; None: nothing has to.

    Args:
        spec: The join as it is declared.
        numbers: The numbers of the slots of its plain join.
    """
    if not spec.is_composed:
        return None
    # The slots with objects; None: what the value source gives.
    places = [
        None if source.operator.gives_value else numbers[object_slot(depth).name]
        for depth, source in enumerate(spec.sources)
        if source.given is not None
    ]

    def compose(env: Environment, value: bytes) -> bytes:
        members = [(value if at is None else env[at].replace(STAND_IN, DELIMITER))[1:-1] for at in places]
        return b"{%b}" % b",".join(filter(None, members))

    return compose
