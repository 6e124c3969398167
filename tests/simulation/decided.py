"""Writes that look at the present value of their key: what the naive model answers to them, and what they leave."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import ABSENT, ADD, PUT_IF, REMOVE_IF, UNMET
from pequod.engine.testing import NaiveModel
from pequod.language.conditions import IF_ABSENT, IF_PRESENT, MET, Condition, IfValue, Unmet, coded
from tests.engine.draw import VALUES
from tests.simulation.database import Rows


@dataclass(frozen=True)
class WriteIf:
    """A put under a condition, or a removal if there is no value."""

    key: bytes
    value: bytes | None
    condition: Condition
    request_id: bytes = b""

    @property
    def columns(self) -> tuple[int, list[bytes], list[int]]:
        """Its kind, arguments and numbers in a batch."""
        number, expected = coded(self.condition)
        if self.value is None:
            return REMOVE_IF, [self.key, expected], [number]
        return PUT_IF, [self.key, self.value, expected], [number, 0]

    @property
    def request(self) -> pb.WriteIfRequest:
        """The request of a call."""
        number, expected = coded(self.condition)
        once = self.request_id
        return pb.WriteIfRequest(key=self.key, value=self.value, condition=number, expected=expected, request_id=once)

    def on(self, rows: Rows) -> tuple[object, bytes | None]:
        """Return its answer over some rows, and the value that the key has afterwards."""
        model = NaiveModel()
        model.base = dict(rows)
        return model.write_if(self.key, self.value, self.condition), model.base.get(self.key)


@dataclass(frozen=True)
class Add:
    """An addition."""

    key: bytes
    delta: bytes
    request_id: bytes = b""

    @property
    def columns(self) -> tuple[int, list[bytes], list[int]]:
        """Its kind, arguments and numbers in a batch."""
        return ADD, [self.key, self.delta], []

    @property
    def request(self) -> pb.AddRequest:
        """The request of a call."""
        return pb.AddRequest(key=self.key, delta=self.delta, request_id=self.request_id)

    def on(self, rows: Rows) -> tuple[object, bytes | None]:
        """Return its answer over some rows, and the value that the key has afterwards.

        The answer is the sum; None if the value is no number.
        """
        model = NaiveModel()
        model.base = dict(rows)
        return model.add_to(self.key, self.delta), model.base.get(self.key)


#: What is decided by the present value.
Decided = WriteIf | Add


def draw_decided(random: Random, key: bytes, present: bytes | None, value: bytes | None) -> Decided:
    """Draw a write, or an addition, of a key whose value is ``present``, or was a moment ago.

    Args:
        value: What is put; None: it is removed.
    """
    if random.random() < 0.3:
        return Add(key, random.choice([b"1", b"-1", b"0.5", b"10"]))
    expected = present if present is not None and random.random() < 0.7 else random.choice(VALUES)
    conditions: list[Condition] = [IF_ABSENT, IF_PRESENT, IfValue(expected), IfValue(expected)]
    return WriteIf(key, value, random.choice(conditions))


def outcome_of(reply: pb.WriteIfReply | pb.AddReply) -> object:
    """Return the answer of a call."""
    if isinstance(reply, pb.AddReply):
        return reply.value
    if reply.met:
        return MET
    return Unmet(reply.present if reply.HasField("present") else None)


def outcome_in_batch(status: int, value: bytes | None) -> object:
    """Return the answer in a batch, from its status and the value that stands with UNMET."""
    if status == UNMET:
        return Unmet(value)
    return Unmet(None) if status == ABSENT else MET
