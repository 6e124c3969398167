"""Record histories, and have them judged.

python -m tests.linearizable --histories 10000              of one server that is killed
python -m tests.linearizable --histories 10000 --stopped    of reads of the latest at three servers that are stopped
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from tests.linearizable import history, stopped
from tests.linearizable.judge import Judge, why_absent

#: Histories at a time.
_TOGETHER: Final = 100


def main() -> None:
    """Record and judge, until there are enough or one is wrong."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--histories", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--stopped", action="store_true", help="servers are stopped, and reads are of the latest")
    options.add_argument("--out", type=Path, default=Path("build/linearizable.jsonl"), help="where a wrong one is kept")
    chosen = options.parse_args()
    if reason := why_absent():
        sys.exit(reason)
    recorded = stopped.recorded if chosen.stopped else history.recorded
    count, operations, unknown, random = 0, 0, 0, Random(chosen.seed)
    with TemporaryDirectory() as scratch:
        judge = Judge(Path(scratch))
        while count < chosen.histories:
            folder = Path(scratch) / f"data{count}"
            histories = asyncio.run(recorded(folder, min(_TOGETHER, chosen.histories - count), random))
            written = [one.as_json() for one in histories]
            if wrong := judge.wrong(written):
                chosen.out.parent.mkdir(parents=True, exist_ok=True)
                chosen.out.write_text("".join(f"{json.dumps(one)}\n" for one in written))
                sys.exit(f"{wrong}: kept in {chosen.out} (seed {chosen.seed}, after {count} histories)")
            count += len(histories)
            operations += sum(len(one.operations) for one in histories)
            unknown += sum("unknown" in each["outcome"] for one in histories for each in one.operations)
    print(f"{count} histories, {operations} operations, {unknown} of them of unknown fate: all linearizable")


if __name__ == "__main__":
    main()
