"""A replacement of a join, with its progress on the screen."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final

from pequod.answers.joins import ReplacementStatus
from pequod.cli.progress import progress_bar

if TYPE_CHECKING:
    from pequod.interface import Calls

#: The bar moves this often.
_LOOK_S: Final = 0.2


def watched(client: Calls, name: str, text: str | None) -> ReplacementStatus:
    """Put a join in the place of another (None: what it was before), and show how far it is; Ctrl-C cancels it."""
    with ThreadPoolExecutor(1) as thread:
        if text is None:
            replaced = thread.submit(client.undo_replacement, name)
        else:
            replaced = thread.submit(client.replace_join, name, text)
        try:
            _show(client, name, replaced)
        except KeyboardInterrupt:
            client.cancel_replacement(name)
            wait([replaced])
            raise
        return replaced.result()


def _show(client: Calls, name: str, replaced: Future[ReplacementStatus]) -> None:
    """Show a bar until a replacement has ended."""
    if wait([replaced], _LOOK_S).done:
        return
    present = _present(client, name)
    with progress_bar(f"replacing {name}", present.ranges_expected if present else None, "ranges") as advance:
        while not wait([replaced], _LOOK_S).done:
            if (present := _present(client, name)) is not None:
                advance(present.ranges_built, present.ranges_built)


def _present(client: Calls, name: str) -> ReplacementStatus | None:
    return next((one for one in client.replacements() if one.join == name and not one.ended), None)
