"""Hooks of mkdocs.yml: the site's pages are files of the repository, wherever they lie.

    nav of mkdocs.yml            files of the site
    README.md                    /                       the page
    grammar/README.md            /grammar/               the page
    docs/api.md                  /docs/api/              the page
                                 /proto/.../pequod.proto what a page links to

Every file keeps its path, so a link that works in the repository works in the site, and no text is there twice.

What the site adds: colours for joins, keys that do not break at the ends of lines, pictures in the reader's colours.
"""

import posixpath
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any, ClassVar

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

ROOT = Path(__file__).parents[1]
#: The kinds of fenced blocks that hold joins.
JOINS = ("cachejoin", "refused")
#: Longer words in code may break: a narrow screen has no room for them.
WHOLE_MAX = 48
_LINK = re.compile(r"\]\(([^)#]+)")
_TABLE_ROW = re.compile(r"^\|.*", re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_INLINE_CODE = re.compile(r"(?<!<pre>)(?<!</span>)<code>([^<]*)</code>")
_PICTURE = re.compile(r'<img [^>]*src="([^"]*\.svg)"[^>]*>')
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)


class JoinLexer(RegexLexer):  # type: ignore[misc]  # Pygments ships no types.
    """The words of joins, for colours alone: pequod_grammar says what is right."""

    name = "Cache joins"
    aliases: ClassVar = ["cachejoin"]
    tokens: ClassVar = {
        "root": [
            (r"\s+", Text),
            (r"(?<![^\s;])(//|#)[^\n]*", Comment.Single),
            (r"(?<![^\s;=])(check\??|unless|copy|count|sum|avg|min|max|with|as)(?![^\s;={])", Keyword),
            (r"(?<![^\s;=])(keep)(\s+)(first|last)(\s+)(\d+)", bygroups(Keyword, Text, Keyword, Text, Number)),
            (r"(?<=\d\s)of(?=\s)", Keyword),
            (r"(?<![^\s;=])(push|pull|snapshot)(?![^\s;=])", Keyword.Type),
            (r"exists(?![^\s;,])", Keyword),
            (r"(true|false|null)(?![^\s;,])", Keyword.Constant),
            (r'"([^"\\\n]|\\[^\n])*"', String),
            (
                r"(<)([^<>:\s=;]+)(:)(\w+)(>)",
                bygroups(Name.Variable, Name.Variable, Punctuation, Number, Name.Variable),
            ),
            (r"<[^<>\s=;]+>", Name.Variable),
            (r"(?<![^\s=<>])[-+]?[0-9.]+(?![^\s;,])", Number),
            (r"(?<![^\s;])[^\s<>|;=,{}\":]+(?=\|)", Name.Class),
            (r"(?<=[|>])[^\s<>|;=,{}\":]+", String),
            (r"[=!<>]+", Operator),
            (r"[|;,:{}\[\]]", Punctuation),
            (r"[^\s<>|;=,{}\":\[\]!]+", Name),
        ]
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Have fenced blocks of joins coloured."""
    fences = [{"name": name, "class": "highlight", "format": coloured} for name in JOINS]
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = fences
    return config


def coloured(source: str, *_: Any, **__: Any) -> str:
    """Return joins as HTML, as other blocks of code are."""
    html: str = highlight(source, JoinLexer(), HtmlFormatter(cssclass="highlight joins", wrapcode=True))
    return html


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take the pages of the navigation and the files that they link to, instead of the folder docs."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    pages = list(pages_of(config.nav))
    styles = [str(path) for path in config.extra_css]
    for path in dict.fromkeys([*pages, *(path for page in pages for path in linked_files(page)), *styles]):
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write `|` in the code of tables as Python-Markdown wants it, without the backslash that code hosts want."""
    return _TABLE_ROW.sub(lambda row: _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), markdown)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Keep the words of code in one piece, and put pictures into the page, where they have its colours."""
    html = _INLINE_CODE.sub(lambda code: f"<code>{_whole_words(code[1])}</code>", html)
    return _PICTURE.sub(lambda image: _inlined(page, image[1]) or image[0], html)


def _whole_words(code: str) -> str:
    return re.sub(
        r"\S+",
        lambda word: f'<span class="whole">{word[0]}</span>' if len(unescape(word[0])) <= WHOLE_MAX else word[0],
        code,
    )


def _inlined(page: Page, address: str) -> str:
    """Return the text of a picture, empty if it is none of ours; its own colours are for readers without the site."""
    target = posixpath.normpath(posixpath.join(page.url, address))
    file = ROOT / target
    return (
        _STYLE.sub("", file.read_text("utf-8")).replace("<svg ", '<svg class="picture" ', 1) if file.is_file() else ""
    )


def pages_of(nav: Any) -> Iterator[str]:
    """Yield the paths of the pages of a navigation."""
    for entry in nav:
        for where in entry.values():
            if isinstance(where, str):
                yield where
            else:
                yield from pages_of(where)


def linked_files(page: str) -> Iterator[str]:
    """Yield the paths of the files of the repository that a page links to, but for other pages."""
    source = ROOT / page
    for link in _LINK.findall(source.read_text("utf-8")):
        target = (source.parent / link).resolve()
        if "://" not in link and target.is_file() and target.suffix != ".md":
            yield target.relative_to(ROOT).as_posix()
