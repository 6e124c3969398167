"""snapshot save and snapshot restore: a server's base data in a file for its next start."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, Target, connected
from pequod.cli.teaching import examples
from pequod.cli.text import json_line

_HELP: Final = """Save what a server holds into its file, and restore it from there.

\b
The file is that of the setting snapshot_file, or the latest of snapshot_folder, on the server's machine. Such a server
    restores it when it starts, before it takes calls,
    saves one when it is stopped (SIGTERM or Ctrl-C), whole or not at all,
    and while it runs as often as snapshot_every_s says.
With an access file, both commands need a role that may do everything.
"""

app: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)


@app.command("save", epilog=examples("pequod snapshot save", "pequod snapshot save --json"))
def save(target: Target = DEFAULT_TARGET, json: Json = False) -> None:
    """Write the base data of this moment into the server's file; the server keeps serving.

    Computed keys are not in it: they are computed again when they are read. The loaded ranges of a database are in it;
    a start with the file finds out what has changed since (docs/operations.md).
    """
    with connected(target) as client:
        saved = client.save_snapshot()
    if json:
        print(json_line(asdict(saved)))
        return
    backed = f", {saved.backed_keys} of them in {saved.ranges} ranges of the database" if saved.ranges else ""
    print(f"saved {saved.keys} keys{backed}: {saved.path}, {saved.file_bytes} bytes")


@app.command("restore", epilog=examples("pequod snapshot restore"))
def restore(target: Target = DEFAULT_TARGET, json: Json = False) -> None:
    """Put the keys of the server's file, all or none; other keys stay as they are.

    A key that was written after the file was saved and is in the file goes back to the file's value. If the server has
    a database behind it, this is refused: restart the server.
    """
    with connected(target) as client:
        restored = client.restore_snapshot()
    if json:
        print(json_line(asdict(restored)))
        return
    from datetime import UTC, datetime

    saved = datetime.fromtimestamp(restored.saved_s, UTC).isoformat(sep=" ", timespec="seconds")
    print(f"restored {restored.keys} keys as of {saved}: {restored.path}")
