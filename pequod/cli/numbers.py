"""Commands that take numbers: `pequod add k -3` adds -3, although it looks like an option."""

from __future__ import annotations

import re
from typing import Any, Final

from typer.core import TyperCommand

_NEGATIVE: Final = re.compile(r"-[0-9.]+").fullmatch


class NumbersCommand(TyperCommand):
    """A command whose arguments may be negative numbers; no option of one looks like a number."""

    # typer passes its own private context class, so the types can only be loose here.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take what looks like a negative number as an argument; an option that the command does not know is wrong."""
        if any(map(_NEGATIVE, args)):
            known = {"--", *(name for one in self.get_params(ctx) for name in one.opts)}
            wrong = [word for word in args if word.startswith("--") and word.partition("=")[0] not in known]
            # An option that is not known is refused by its name, whatever stands before it.
            ctx.ignore_unknown_options, args = not wrong, wrong or args
        rest: list[str] = super().parse_args(ctx, args)
        return rest
