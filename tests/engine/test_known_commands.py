"""Commands of a batch that were done before: their outcome is given, and the engine is not asked."""

from __future__ import annotations

from pequod.commands.kinds import ADD, GET, PUT
from pequod.engine import Engine, PequodError
from pequod.engine.answer import Answer
from pequod.engine.batch import BatchRun


def test_a_command_that_was_done_before_gives_its_outcome_and_changes_nothing() -> None:
    engine, outcomes = Engine(), list[Answer | PequodError]()
    run = BatchRun(bytes([PUT, ADD, ADD, GET]), [b"n", b"1", b"n", b"2", b"n", b"4", b"n"], [])
    run.ids = {1: b"known", 2: b"new"}
    run.known = lambda: (b"seven",) if run.request_id == b"known" else None

    def take(outcome: Answer | PequodError) -> bool:
        outcomes.append(outcome)
        run.advance()
        return True

    assert run.run(engine, lambda: 0.0, take) is None
    assert outcomes == [None, b"seven", b"5", b"5"]


def test_a_command_that_is_refused_is_not_looked_for_among_those_done_before() -> None:
    refused, outcomes = PequodError("no"), list[Answer | PequodError]()
    run = BatchRun(bytes([ADD]), [b"n", b"1"], [])
    run.refusal = lambda _position: refused
    run.known = lambda: (b"seven",)

    def take(outcome: Answer | PequodError) -> bool:
        outcomes.append(outcome)
        run.advance()
        return True

    run.run(Engine(), lambda: 0.0, take)
    assert outcomes == [refused]
