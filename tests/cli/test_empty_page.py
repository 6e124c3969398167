"""The page about empty scans shows what is printed."""

from __future__ import annotations

from tests.cli.test_readme import BLOCK, ROOT, commands, run, target

__all__ = ["target"]

PAGE = (ROOT / "docs/when-a-scan-is-empty.md").read_text("utf-8")


def test_the_sessions_are_as_the_page_shows_them(target: str) -> None:
    shown = 0
    for kind, text in BLOCK.findall(PAGE):
        assert kind == "console"
        for command, output in commands(text):
            printed = sorted(run(["bash", "-c", command], target).splitlines())
            # The two outputs of a command come in no certain order.
            assert printed == sorted(output.splitlines()), command
            shown += 1
    assert shown > 10
