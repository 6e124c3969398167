"""views verify: compare tables with the server, and mend what differs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, connection_settings
from pequod.cli.exits import ExitCode, fail
from pequod.cli.tables import print_table
from pequod.cli.teaching import examples
from pequod.cli.text import json_line
from pequod.cli.views_file import Database, Server, ViewsFile, run_with, views_of

if TYPE_CHECKING:
    from pequod_views import Target
    from pequod_views.verifying import PartVerdict

VERIFY_EPILOG: Final = examples(
    "pequod views verify views.toml",
    "pequod views verify views.toml karma --repair",
)


def verify(
    file: ViewsFile,
    names: Annotated[list[str] | None, typer.Argument(metavar="[VIEW]...", help="Views; without any, all.")] = None,
    database: Database = None,
    target: Server = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Write rows as they should be, delete strange ones, add lost columns.")
    ] = False,
    seconds: Annotated[
        float,
        typer.Option("--wait", min=0.1, metavar="SECONDS", help="For a part to come as far as the server."),
    ] = 30.0,
    json: Json = False,
) -> None:
    """Compare each row of the tables with the server, while managers go on, and print what differs.

    A row that is only late is no difference. A view that cannot be compared, such as one whose table lacks a column, is
    told, and the others are looked at all the same. Managers tell what was found and not mended as
    pequod_views_drifted_rows. Exit code 0 if all is equal or was mended, 3 if not, or if a part could not be compared.
    """
    views = views_of(file)
    chosen = [view for view in views.views if not names or view.name in names]
    if unknown := set(names or ()) - {view.name for view in chosen}:
        fail(ExitCode.USAGE, f"the file has no view {min(unknown)!r}")

    async def work(place: Target) -> list[PartVerdict]:
        from pequod_views.errors import OtherServerError, UnverifiableError
        from pequod_views.verifying import PartVerdict, Verifier

        from pequod.client import AsyncClient

        async with AsyncClient(target or views.server or DEFAULT_TARGET, **connection_settings()) as client:
            verifier = Verifier(place, client, wait_s=seconds, repairs=repair)
            found = list[PartVerdict]()
            for view in chosen:
                try:
                    found += await verifier.verify(view)
                except (UnverifiableError, OtherServerError) as error:
                    found.append(PartVerdict(view.name, "", trouble=str(error)))
            return found

    verdicts = run_with(views, database, work)
    if json:
        for one in verdicts:
            print(json_line({**asdict(one), "drifts": list(map(str, one.drifts))}))
    else:
        _show(verdicts)
    wrong = sum(one.drift_count - one.repaired_count for one in verdicts)
    mends = "" if repair else "; `pequod views verify --repair` mends them"
    told = [f"{wrong} rows differ{mends}"] if wrong else []
    if any(one.trouble for one in verdicts):
        told.append("not all parts could be compared")
    if told:
        fail(ExitCode.REFUSED, "; ".join(told))


def _show(verdicts: list[PartVerdict]) -> None:
    print_table(
        ("view", "from", "rows", "differ", "mended", "open"),
        [
            (
                one.view,
                one.first,
                str(one.row_count),
                str(one.drift_count),
                str(one.repaired_count),
                str(one.open_count),
            )
            for one in verdicts
        ],
    )
    for one in verdicts:
        untold = one.drift_count - len(one.drifts)
        texts = [*map(str, one.drifts), *([f"and {untold} more rows"] if untold else [])]
        for text in (*texts, *([one.trouble] if one.trouble else [])):
            print(f"{one.view} from {one.first}: {text}" if one.first else f"{one.view}: {text}")
