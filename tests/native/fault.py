"""A fault that `planted` puts into the native core."""

from typing import NamedTuple


class Fault(NamedTuple):
    """A fault, and what is wrong with it in place."""

    file: str
    #: The text at the place; the file has it once.
    right: str
    wrong: str
    #: What goes wrong, as a caller sees it.
    breaks: str
