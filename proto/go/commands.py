"""Write what belongs to each command of the Go client: `python proto/go/commands.py > proto/go/commands.go`.

A command is a row of the table of kinds, and a row of `CALLS` here: from both come its number, its method of a batch
and of a client, and what is read of its reply. Which calls may be made twice is what the Python client says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from pequod.client.retry import HARMLESS_TWICE
from pequod.commands import kinds
from pequod.commands.kinds import DECIDED, KINDS, CommandKind, Gives
from pequod.language import transactions


class Call(NamedTuple):
    """A method of the same name of batches and of clients."""

    name: str
    kind: int
    #: What it does, in a batch.
    does: str
    #: What a client's method says beside that; empty for nothing.
    gives: str
    #: The number that the command always has, in place of a time to live.
    number: str = ""


CALLS: Final = (
    Call("Get", kinds.GET, "reads a value", ", nil if there is no such key"),
    Call("Put", kinds.PUT_TTL, "writes a base key", ""),
    Call("PutIf", kinds.PUT_IF, "writes a base key if a condition is met", ""),
    Call("Remove", kinds.REMOVE, "removes a base key", ", and returns whether it was there"),
    Call("RemoveIf", kinds.REMOVE_IF, "removes a base key if a condition is met", ""),
    Call("Add", kinds.ADD, "adds a decimal in plain digits to the value of a base key", ", and returns the sum"),
    Call("Expire", kinds.EXPIRE, "has a base key expire after some time", ", and returns whether it is there"),
    Call("Persist", kinds.EXPIRE, "has a base key live for ever", ", and returns whether it is there", number="0"),
    Call("TTL", kinds.TTL, "tells how long a key lives from now on", ", and whether it is there"),
    Call("Count", kinds.COUNT, "counts the keys of a range", ""),
)

#: Calls of the contract: what a method is called and does, its parameter, the call, its request, and what is given of
#: its reply.
WRAPPED: Final = (
    ("AddJoin", "installs the joins of a text, all or none", "text string", "AddJoin", "Text: text", "Joins"),
    ("DropJoin", "drops a join and exactly its outputs", "name string", "DropJoin", "Name: name", ""),
    ("Joins", "returns the installed joins, the earliest first", "", "ListJoins", "", "Joins"),
)

#: The compares of transactions: the name, the operator, what it holds of, and whether it has a value or a number.
COMPARES: Final = (
    ("Absent", transactions.IS_ABSENT, "the key is not there", ""),
    ("Present", transactions.IS_PRESENT, "the key is there", ""),
    ("Equal", transactions.EQUAL, "the key has the value", "value []byte"),
    ("NotEqual", transactions.NOT_EQUAL, "the key has another value, or is not there", "value []byte"),
    ("Less", transactions.LESS, "the value of the key is a number below this one", "number string"),
    ("Greater", transactions.GREATER, "the value of the key is a number above this one", "number string"),
)

#: The parameter, and the argument that it becomes, by what the table of kinds says an argument is.
_ARGUMENTS: Final = {
    "key": ("key string", "[]byte(key)"),
    "value": ("value []byte", "value"),
    "delta": ("delta string", "[]byte(delta)"),
    "expected": ("condition Condition", "condition.expected"),
    "first": ("over Range", "first"),
    "last": ("", "last"),
}

#: What a method of a client returns, and how it is made of a Result; what is read from a reply.
_GIVES: Final = {
    Gives.VALUE: ("[]byte", "got.Value", "if r.Found { r.Value = there(take(&from.Values)) }"),
    Gives.NOTHING: ("", "", ""),
    Gives.WAS_THERE: ("bool", "got.Found", ""),
    Gives.ROWS: ("[]Row", "got.Rows", "r.Rows = append(r.Rows, takeRows(from)...)"),
    Gives.COUNT: ("uint64", "got.Count", "r.Count = take(&from.Counts)"),
    Gives.MET: (
        "Outcome",
        "Outcome{got.Met, got.Value}",
        "r.Met = status == statusOK; if status == statusUnmet { r.Value = there(take(&from.Values)) }",
    ),
    Gives.REMAINING: ("time.Duration, bool", "got.TTL, got.Found", "if r.Found { r.TTL = lives(take(&from.Counts)) }"),
}


def _go(name: str) -> str:
    """Return the name of a kind, such as PUT_IF, with capital letters as Go has them."""
    return "".join(word if word in {"TTL", "OK"} else word.capitalize() for word in name.split("_"))


def _cases(codes: Iterable[int]) -> str:
    return ", ".join(f"kind{_go(kinds.NAMES[code])}" for code in sorted(codes))


def _numbers(kind: CommandKind, call: Call) -> tuple[list[str], list[str]]:
    """Return the parameters that become the numbers of a command, and these."""
    parameters, numbers = [], []
    for name in kind.numbers:
        if name == "condition":
            numbers.append("condition.number")
        elif call.number:
            numbers.append(call.number)
        elif "value" in kind.arguments:
            parameters.append("options *PutOptions")
            numbers.append("b.number(options.number())")
        else:
            parameters.append("ttl time.Duration")
            numbers.append("b.number(milliseconds(ttl))")
    return parameters, numbers


def _methods(call: Call) -> str:
    """Return both methods of a call."""
    kind = kinds.KIND_OF[call.kind]
    made, numbers = _numbers(kind, call)
    given = [_ARGUMENTS[name] for name in kind.arguments]
    parameters = ", ".join([*(parameter for parameter, _ in given if parameter), *made])
    names = ", ".join(parameter.split()[0] for parameter in parameters.split(", "))
    columns = ", ".join((f"[]uint64{{{', '.join(numbers)}}}" if numbers else "nil", *(one for _, one in given)))
    bounds = "first, last := over.bounds();" if kind.is_of_range else ""
    types, got, _ = _GIVES[kind.gives]
    if call.kind == kinds.ADD:
        types, got = "string", "string(got.Value)"
    returns, result, taken = (f"({types}, error)", f"{got}, err", "got") if types else ("error", "err", "_")
    return f"""
// {call.name} {call.does}.
func (b *Batch) {call.name}({parameters}) {{ {bounds} b.add(kind{_go(kind.name)}, {columns}) }}

// {call.name} {call.does}{call.gives}.
func (c *Client) {call.name}(ctx context.Context, {parameters}) {returns} {{
    {taken}, err := c.one(ctx, func(b *Batch) {{ b.{call.name}({names}) }})
    return {result}
}}"""


def _wrapped(name: str, does: str, parameter: str, call: str, request: str, gives: str) -> str:
    returns, result, taken = (
        ("([]*pb.Join, error)", f"got.Get{gives}(), err", "got") if gives else ("error", "err", "_")
    )
    return f"""
// {name} {does}.
func (c *Client) {name}(ctx context.Context{parameter and ", "}{parameter}) {returns} {{
    {taken}, err := c.stub().{call}(ctx, &pb.{call}Request{{{request}}})
    return {result}
}}"""


def _compare(name: str, operator: int, holds: str, parameter: str) -> str:
    value = {"": "nil", "value []byte": "value", "number string": "[]byte(number)"}[parameter]
    return f"""
// {name} holds if {holds}.
func {name}(key string{parameter and ", "}{parameter}) Compare {{ return Compare{{key, {operator}, {value}}} }}"""


def _predicate(name: str, told: str, holds: Callable[[CommandKind], bool]) -> str:
    return f"""
// {name} returns whether {told}.
func {name}(kind byte) bool {{
    switch kind {{
    case {_cases(kind.code for kind in KINDS if holds(kind))}:
        return true
    }}
    return false
}}"""


def _numbered(names: Iterable[tuple[str, int]]) -> str:
    return "".join(f"{name} = {number}\n" for name, number in names)


def _taking() -> str:
    """Return what reads the columns of a reply."""
    cases = (
        f"case {_cases(kind.code for kind in KINDS if kind.gives is gives)}:\n{reading}"
        for gives, (_, _, reading) in _GIVES.items()
        if reading
    )
    return "\n".join(
        (
            "\n// take reads what a command gives from the columns of a reply.",
            "func (r *Result) take(kind, status byte, from *pb.ExecuteReply) {\nswitch kind {",
            *cases,
            "}\n}",
        )
    )


def _harmless() -> str:
    calls = "".join(f'"/pequod.v1.Pequod/{name}": true,\n' for name in sorted(HARMLESS_TWICE))
    return f"""
// harmlessTwice are the calls that may be made again whether or not they were applied.
var harmlessTwice = map[string]bool{{
{calls}}}"""


def main() -> None:
    """Print the file, but for its format."""
    print("// Code generated by commands.py. DO NOT EDIT.\n\npackage pequod\n")
    print('import ("context"; "time")\n\nimport pb "pequod/v1"\n')
    print("// The kinds of commands that a batch has, and the statuses of commands in a reply.\nconst (")
    print(_numbered((f"kind{_go(kind.name)}", kind.code) for kind in KINDS))
    statuses = ("OK", "ABSENT", "FAILED", "PART", "UNMET")
    print(_numbered((f"status{_go(name)}", getattr(kinds, name)) for name in statuses) + ")")
    print(_predicate("isWrite", "a command of a kind changes anything", lambda kind: kind.is_write))
    told = "a command of a kind goes by the present value: with an id it is done once though it is sent twice"
    print(_predicate("isDecided", told, lambda kind: kind.code in DECIDED))
    print(_taking())
    print(_harmless())
    for call in CALLS:
        print(_methods(call))
    for wrapped in WRAPPED:
        print(_wrapped(*wrapped))
    for compare in COMPARES:
        print(_compare(*compare))


if __name__ == "__main__":
    main()
