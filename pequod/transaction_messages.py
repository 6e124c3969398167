"""Transactions as messages, as clients, servers and homes write and read them.

Transaction  -> TransactionRequest    three columns of compares, two lists of commands as columns of batches
Transacted   -> TransactionReply      the columns of a reply to a batch, for the list that has run
"""

from __future__ import annotations

from pequod_proto import pequod_pb2 as pb

from pequod.answers.rows import Rows
from pequod.answers.transacted import Outcome, Transacted
from pequod.commands.kinds import ABSENT, GIVES, OK, Gives
from pequod.errors import BadRequestError
from pequod.language.transactions import CommandList, KeyCompare, Transaction


def transaction_request(transaction: Transaction) -> pb.TransactionRequest:
    """Return the message of a transaction."""
    compares = transaction.compares
    return pb.TransactionRequest(
        compare_keys=[one.key for one in compares],
        compare_operators=bytes([one.operator for one in compares]),
        compare_values=[one.value for one in compares],
        then=_columns(transaction.then),
        otherwise=_columns(transaction.otherwise),
        request_id=transaction.request_id,
    )


def _columns(commands: CommandList) -> pb.CommandColumns:
    return pb.CommandColumns(kinds=commands.kinds, arguments=commands.arguments, numbers=commands.numbers)


def transaction_of(message: pb.TransactionRequest) -> Transaction:
    """Return the transaction of a message, whose lists may still be such that it cannot run.

    Raises:
        BadRequestError: The columns of its compares are not of one length.
    """
    keys, operators, values = message.compare_keys, message.compare_operators, message.compare_values
    if not len(keys) == len(operators) == len(values):
        raise BadRequestError(
            f"each compare has a key, an operator and a value: there are {len(keys)} keys, {len(operators)} operators "
            f"and {len(values)} values"
        )
    compares = tuple(map(KeyCompare, keys, operators, values))
    return Transaction(compares, _list(message.then), _list(message.otherwise), message.request_id)


def _list(columns: pb.CommandColumns) -> CommandList:
    return CommandList(columns.kinds, columns.arguments[:], columns.numbers[:])


def transaction_reply(transaction: Transaction, done: Transacted) -> pb.TransactionReply:
    """Return the message of an outcome."""
    reply = pb.TransactionReply(held=done.held)
    kinds = (transaction.then if done.held else transaction.otherwise).kinds
    statuses = bytearray()
    for kind, outcome in zip(kinds, done.outcomes, strict=True):
        gives = GIVES[kind]
        statuses.append(ABSENT if outcome is False or (outcome is None and gives is Gives.VALUE) else OK)
        if isinstance(outcome, Rows):
            reply.keys.extend(outcome.keys)
            reply.values.extend(outcome.values)
            reply.counts.append(len(outcome.keys))
        elif isinstance(outcome, bytes):
            reply.values.append(outcome)
        elif gives is Gives.COUNT and outcome is not None:
            reply.counts.append(outcome)
    reply.statuses = bytes(statuses)
    return reply


def transacted_of(transaction: Transaction, message: pb.TransactionReply) -> Transacted:
    """Return the outcome of a message."""
    kinds = (transaction.then if message.held else transaction.otherwise).kinds
    keys, values, counts = iter(message.keys), iter(message.values), iter(message.counts)
    outcomes: list[Outcome] = []
    for kind, status in zip(kinds, message.statuses, strict=True):
        match GIVES[kind]:
            case Gives.ROWS:
                count = next(counts)
                outcomes.append(Rows([next(keys) for _ in range(count)], [next(values) for _ in range(count)]))
            case Gives.COUNT:
                outcomes.append(next(counts))
            case Gives.WAS_THERE:
                outcomes.append(status == OK)
            case Gives.VALUE if status == OK:
                outcomes.append(next(values))
            case _:
                outcomes.append(None)
    return Transacted(message.held, outcomes)
