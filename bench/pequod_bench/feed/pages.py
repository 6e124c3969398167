"""What pages have to show, by SQL over the tables as Mastodon has them: without the columns that the joins go by."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

#: Rows of a feed, and of a page of it.
KEPT: Final = 400
PAGE: Final = 20


class Status(NamedTuple):
    """A row of a page."""

    id: int
    author: int
    text: str
    reblog_of: int | None


_FOLLOWS: Final = "EXISTS (SELECT FROM follows f WHERE f.account_id = {me} AND f.target_account_id = {who})"
#: What is asked of a status of another one, s; b is the status that it boosts, o the author of that.
VISIBLE: Final = f"""
    EXISTS (SELECT FROM follows f WHERE f.account_id = {{me}} AND f.target_account_id = s.account_id
        AND (f.show_reblogs OR s.reblog_of_id IS NULL))
    AND (s.in_reply_to_account_id IS NULL OR s.in_reply_to_account_id IN ({{me}}, s.account_id)
        OR {_FOLLOWS.format(me="{me}", who="s.in_reply_to_account_id")})
    AND NOT EXISTS (SELECT FROM mutes m WHERE m.account_id = {{me}} AND m.target_account_id IN (s.account_id, o.id))
    AND NOT EXISTS (SELECT FROM blocks k WHERE k.account_id = {{me}} AND k.target_account_id IN (s.account_id, o.id))
    AND NOT EXISTS (SELECT FROM blocks k WHERE k.target_account_id = {{me}} AND k.account_id = o.id)
    AND NOT EXISTS (SELECT FROM account_domain_blocks d WHERE d.account_id = {{me}} AND d.domain_id = o.domain_id)
"""
STATUSES: Final = (
    """statuses s LEFT JOIN statuses b ON b.id = s.reblog_of_id LEFT JOIN accounts o ON o.id = b.account_id"""
)
_COLUMNS: Final = "SELECT s.id, s.account_id, s.text, s.reblog_of_id"
_IN_LIST: Final = "(SELECT account_id FROM list_accounts WHERE list_id = l.id AND NOT is_owner)"
HOME: Final = f"""{_COLUMNS} FROM {STATUSES} WHERE s.deleted_at IS NULL
    AND s.account_id IN (SELECT %(me)s UNION SELECT target_account_id FROM follows WHERE account_id = %(me)s)
    AND (s.account_id = %(me)s OR {VISIBLE.format(me="%(me)s")}) ORDER BY s.id DESC LIMIT {KEPT}"""
LISTED: Final = f"""{_COLUMNS} FROM lists l, {STATUSES} WHERE l.id = %(list)s AND s.deleted_at IS NULL
    AND s.account_id IN {_IN_LIST} AND {VISIBLE.format(me="l.account_id")}
    AND (l.replies_policy = 'followed' OR s.in_reply_to_account_id IS NULL
        OR s.in_reply_to_account_id IN (s.account_id, l.account_id) OR s.in_reply_to_account_id IN {_IN_LIST})
    ORDER BY s.id DESC LIMIT {KEPT}"""


def home(cursor: Any, user: int) -> list[Status]:
    """Return the whole home feed of a user, newest first."""
    cursor.execute(HOME, {"me": user})
    return [Status(*row) for row in cursor.fetchall()]


def listed(cursor: Any, number: int) -> list[Status]:
    """Return the whole feed of a list, newest first."""
    cursor.execute(LISTED, {"list": number})
    return [Status(*row) for row in cursor.fetchall()]
