"""The `pequod` command: a server, its data and joins, and the benchmarks, from a shell.

Nothing heavy is imported before a command needs it: `pequod --help` takes 0.11 s, most of it typer.
"""

import gc


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from pequod.cli.results import written_results

        with written_results():
            from pequod.cli.app import app

            app(prog_name="pequod")
    except KeyboardInterrupt:
        # Typer ends so by itself once it runs; this is for Ctrl-C while modules are still imported.
        raise SystemExit(130) from None
    finally:
        # The process ends and frees everything; without this, Python collects what is left first, for 40 ms.
        gc.freeze()
