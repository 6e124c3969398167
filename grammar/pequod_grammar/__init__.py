"""The cache-join language: from text to `JoinSpec`, with errors that show the place and a hint.

>>> from pequod_grammar import parse
>>> [str(spec) for spec in parse("karma|<author> = count vote|<author>|<id>|<voter>;")]
['karma|<author> = count vote|<author>|<id>|<voter>']
"""

from pequod_grammar.parser import parse, parse_one, parse_some

__all__ = ["parse", "parse_one", "parse_some"]
