"""Hooks of mkdocs.yml: the site's pages are files of the repository, wherever they lie.

    nav of mkdocs.yml            files of the site
    README.md                    /                       the page
    grammar/README.md            /grammar/               the page
    docs/api.md                  /docs/api/              the page
                                 /proto/.../pequod.proto what a page links to

Every file keeps its path, so a link that works in the repository works in the site, and no text is there twice.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\]\(([^)#]+)")
_TABLE_ROW = re.compile(r"^\|.*", re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take the pages of the navigation and the files that they link to, instead of the folder docs."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    pages = list(pages_of(config.nav))
    for path in dict.fromkeys([*pages, *(path for page in pages for path in linked_files(page))]):
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write `|` in the code of tables as Python-Markdown wants it, without the backslash that code hosts want."""
    return _TABLE_ROW.sub(lambda row: _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), markdown)


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
