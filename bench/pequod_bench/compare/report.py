"""The comparison as files."""

from __future__ import annotations

from pathlib import Path

from pequod_bench.compare.comparison import Comparison
from pequod_bench.compare.markdown import to_markdown
from pequod_bench.compare.page import to_html


def write_report(comparison: Comparison, folder: Path) -> None:
    """Write compare.html, compare.md and compare.json, over those that are there."""
    texts = {
        "compare.json": comparison.to_json(),
        "compare.md": to_markdown(comparison),
        "compare.html": to_html(comparison),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
