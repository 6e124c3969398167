"""The native core keeps the rules of the Python beside it: short files and functions, includes that run one way."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NATIVE = ROOT / "pequod/native"
FILES = sorted([*NATIVE.rglob("*.cpp"), *NATIVE.rglob("*.hpp")])

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
LINE_LENGTH_MAX = 120
#: What a file may include: the files of lower lines, and its own header. Those of one line do not know each other.
LAYERS = (
    "module",
    "http2/calls http2/client_calls",
    "http2/hot_reply http2/hot_answer http2/hot_keys",
    "http2/relay http2/relay_link http2/relay_end",
    "http2/hot_calls http2/hot_batches http2/hot_runs http2/reads",
    "http2/session http2/client",
    "http2/output http2/fields http2/lease http2/owners http2/samples",
    "http2/library http2/stream",
    "http2/nghttp2_check",
    "http2/nghttp2",
    "batch batch_message batch_commands",
    "ahead engine_type",
    "verbs",
    "writing",
    "telling collect",
    "told",
    "copying counting indexes",
    "engine",
    "cutting timeline routes",
    "kernel",
    "deadlines_type ends contexts_type frames_type lens_type rows_type tables_type changes_type",
    "frames state",
    "contexts tables tails lens columns contents tally watches",
    "deadlines groups ranks changes",
    "arguments integers",
    "fields places parts messages numerals numbers key_ranges outcomes",
    "hash buffer",
    "row_lists",
    "rows kinds registers records fetch",
)
#: Parts of one thing, which have one header.
PARTS = {
    "batch_message": "batch",
    "batch_commands": "batch",
    "http2/hot_answer": "http2/hot_reply",
    "http2/hot_keys": "http2/hot_reply",
    "http2/hot_batches": "http2/hot_calls",
    "http2/hot_runs": "http2/hot_calls",
    "http2/reads": "http2/hot_calls",
    "http2/relay_link": "http2/relay",
    "http2/relay_end": "http2/relay",
}
#: What begins a block that is no function.
NO_FUNCTION = re.compile(
    r"\s*(?:}|#|//|namespace|struct|class|enum|template|if|for|while|switch|else|do|case|default)\b"
)


def name_of(path: Path) -> str:
    """Return the name of a file and its header: where it is in the native core, without a suffix."""
    return path.relative_to(NATIVE).with_suffix("").as_posix()


def level(name: str) -> int:
    return next(-at for at, layer in enumerate(LAYERS) if name in layer.split())


def test_files_and_lines_are_short() -> None:
    texts = {path.relative_to(NATIVE).as_posix(): path.read_text().splitlines() for path in FILES}
    assert [name for name, lines in texts.items() if len(lines) > FILE_LINES_MAX] == []
    long = [
        f"{name}:{at}"
        for name, lines in texts.items()
        for at, line in enumerate(lines, 1)
        if len(line) > LINE_LENGTH_MAX
    ]
    assert long == []


def functions(lines: list[str]) -> dict[str, int]:
    """Return how many lines each function has, without its signature, by the line with which it begins.

    The formatter makes that easy: a function ends with a brace below its first letter, and what is between is indented.
    """
    found = {}
    for end, line in enumerate(lines):
        if not re.match(r" {0,4}}", line):
            continue
        margin = line[: line.index("}")]
        start = end - 1
        while lines[start].strip() == "" or not re.match(margin + r"[^\s}]", lines[start]):
            start -= 1
        opened = next(at for at in range(start, end + 1) if lines[at].endswith("{") or at == end)
        signature = " ".join(lines[start : opened + 1])
        if "(" in signature and not NO_FUNCTION.match(lines[start]) and " = {" not in signature:
            found[f"{start + 1}: {lines[start].strip()}"] = end - opened - 1
    return found


def test_functions_are_short() -> None:
    counted = {path.relative_to(NATIVE).as_posix(): functions(path.read_text().splitlines()) for path in FILES}
    assert [
        f"{name}:{one}" for name, of in counted.items() for one, lines in of.items() if lines > FUNCTION_LINES_MAX
    ] == []
    assert sum(map(len, counted.values())) > 300, "functions are recognised"
    assert any(
        one.endswith("copy_to_all(HotEngine* engine, const Told& told, Changed* changed) {")
        for one in counted["telling.cpp"]
    )


def test_includes_run_one_way() -> None:
    wrong = []
    for path in FILES:
        name = name_of(path)
        for said in re.findall(r'#include "([\w./]+)\.hpp"', path.read_text()):
            included = name_of((path.parent / said).resolve())
            is_own = included == name or (path.suffix == ".cpp" and PARTS.get(name) == included)
            if not is_own and level(included) >= level(name):
                wrong.append(f"{name}{path.suffix} includes {included}.hpp")
    assert wrong == []


def test_every_file_has_its_layer() -> None:
    named = [name for layer in LAYERS for name in layer.split()]
    assert sorted(named) == sorted({name_of(path) for path in FILES})


def test_nothing_but_the_core_is_switched_for_walks() -> None:
    """`general_way` is for benchmarks; two tests see that it does what it says."""
    users = {path.name for path in (ROOT / "tests").rglob("*.py") if "general_way" in path.read_text()}
    assert users == {"test_timeline.py", "test_collecting.py", Path(__file__).name}
