"""Fuzz the parser of the cache-join language with atheris, for a bounded time: `make fuzz`.

    python tests/fuzz/fuzz_parser.py --seconds 60

Whatever the text, the parser gives joins, which print and parse to the same, or a JoinError with a place in the text.
"""

import argparse
import sys

import atheris

with atheris.instrument_imports(include=["pequod_grammar", "pequod.language.rules", "pequod.language.errors"]):
    from pequod_grammar import parse

    from pequod.engine import JoinError

WORDS = [
    "t|<a>",
    "|<b:3>",
    " = ",
    "copy ",
    "check ",
    "count ",
    "pull ",
    "snapshot ",
    "2.5 ",
    ";",
    "\n",
    "// ",
    "<",
    ">",
]


def draw_text(data: bytes) -> str:
    """Return text that is often nearly a join."""
    provider = atheris.FuzzedDataProvider(data)
    pieces = []
    for _ in range(provider.ConsumeIntInRange(0, 30)):
        if provider.ConsumeBool():
            pieces.append(WORDS[provider.ConsumeIntInRange(0, len(WORDS) - 1)])
        else:
            pieces.append(provider.ConsumeUnicodeNoSurrogates(4))
    return "".join(pieces)


def check_text(data: bytes) -> None:
    """Parse one text; anything but joins or a JoinError is a finding."""
    text = draw_text(data)
    try:
        specs = parse(text)
    except JoinError as error:
        assert error.span is not None
        assert 0 <= error.span.start < error.span.end <= len(text) + 1
        assert str(error)
        return
    for spec in specs:
        assert parse(str(spec)) == [spec]


def main() -> None:
    """Fuzz for some seconds; ends with an error at the first finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    atheris.Setup([sys.argv[0], f"-max_total_time={options.seconds}", "-max_len=256"], check_text)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
