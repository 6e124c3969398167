"""Pages of tables are true as well: calls that they show are made, and words mean one thing."""

import importlib.util
import re
from pathlib import Path

import pytest

import pequod
from pequod import Client
from tests.forked import started_server
from tests.test_tidy import PROSE

ROOT = Path(__file__).parents[1]
GRAMMAR = (ROOT / "grammar/README.md").read_text("utf-8")
CELL = re.compile(r"(?<!\\)\|")


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of the rows of all tables of a page, without those of headings."""
    rows = re.findall(r"^\| *(.*?) *\|$", (ROOT / page).read_text(), re.MULTILINE)
    return [[cell.strip().replace(r"\|", "|") for cell in CELL.split(row)] for row in rows if not row.startswith("---")]


def test_the_calls_of_the_redis_page_give_what_it_shows() -> None:
    calls = [row for row in rows_of("docs/coming-from-redis.md") if re.fullmatch(r"`client\..*`", row[1])]
    with started_server() as (target, _), Client(target) as client:
        for _, call, shown in calls:
            result = eval(call.strip("`"), {"client": client, "pequod": pequod})
            assert not shown or repr(result) == shown.strip("`"), call
            assert shown or result is None or "add_join" in call, f"{call} gives something that is not shown"
    assert len(calls) > 50


def test_the_words_of_joins_have_colours() -> None:
    site = importlib.util.spec_from_file_location("site_of_docs", ROOT / "docs/site.py")
    assert site is not None
    assert site.loader is not None
    module = importlib.util.module_from_spec(site)
    site.loader.exec_module(module)
    lexer = module.JoinLexer()
    for text in re.findall(r"^```(?:cachejoin|refused)\n(.*?)^```$", GRAMMAR, re.MULTILINE | re.DOTALL):
        tokens = list(lexer.get_tokens(text))
        assert "".join(word for _, word in tokens) == text
        assert "Token.Error" not in {str(kind) for kind, _ in tokens}, text
    join = 't|<a>|<b:10>|x = pull copy p|<a>|<b> with n >= 5, ok = "yes" unless m|<a> keep last 9 of <a> // why'
    kinds = {word: str(kind) for kind, word in lexer.get_tokens(join)}
    assert kinds == kinds | {
        "t": "Token.Name.Class",
        "<a>": "Token.Name.Variable",
        "10": "Token.Literal.Number",
        "x": "Token.Literal.String",
        "pull": "Token.Keyword.Type",
        "copy": "Token.Keyword",
        "unless": "Token.Keyword",
        "keep": "Token.Keyword",
        "last": "Token.Keyword",
        "9": "Token.Literal.Number",
        "of": "Token.Keyword",
        "with": "Token.Keyword",
        "n": "Token.Name",
        "5": "Token.Literal.Number",
        '"yes"': "Token.Literal.String",
        "// why": "Token.Comment.Single",
    }


def words_of(page: str) -> dict[str, str]:
    rows = [row for row in rows_of(page) if len(row) == 2 and row[0] != "word"]
    assert len(dict(rows)) == len(rows), "a word is there twice"
    return dict(rows)


def test_the_glossary_has_each_word_once_with_the_meaning_that_it_has_inside() -> None:
    glossary = words_of("docs/glossary.md")
    names = [name for word in glossary for name in word.split(", ")]
    assert len(set(names)) == len(names)
    assert [word.lower() for word in glossary] == sorted(word.lower() for word in glossary)
    inside = words_of("ARCHITECTURE.md")
    shared = glossary.keys() & inside.keys()
    assert {word: glossary[word] for word in shared} == {word: inside[word] for word in shared}
    assert len(shared) > 8


#: What only PostgreSQL's slots do: a slot of a pattern is not made, dropped, kept by a server or in use.
BARE_SLOT = re.compile(
    r"\b(?<!replication )slots? (is|are) (gone|in use|dropped|made|not there|held|invalid|confirmed|not dropped)\b"
    r"|\b(?<!replication )slot (of its own|without a reader|keeps|keeping|stays|\{\w*\.?feed_name\}|dropped)"
    r"|\b(mak(es?|ing)|drops?|us(es|ing)|lets go of|leaves|needs|a publication and|lost) "
    r"(a|the|its|its own|each) slots?\b"
    r"|\bthere is no slot \{"
)


@pytest.mark.parametrize("where", PROSE)
def test_a_slot_of_postgresql_is_called_a_replication_slot(where: str) -> None:
    path = ROOT / where
    files = [path] if path.is_file() else [one for kind in ("*.md", "*.py") for one in path.rglob(kind)]
    ours = [file for file in files if "node_modules" not in file.parts]
    found = [f"{file.relative_to(ROOT)}: {' '.join(hit[0].split())}" for file in ours for hit in _bare(file)]
    assert found == []


def _bare(file: Path) -> list[re.Match[str]]:
    return list(BARE_SLOT.finditer(re.sub(r"\s+", " ", file.read_text("utf-8"))))
