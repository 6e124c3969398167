"""A worker: takes one step after another under leases, beside any number of others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic, process_time
from typing import Final

from pequod_lake.catalog import LakeCatalog
from pequod_lake.coordination import Coordinator
from pequod_lake.errors import LakeBusyError, LakeCorruptError, StepLostError, WriterLostError
from pequod_lake.ingest import AtPoint, no_point
from pequod_lake.runs import LakeStep, MergePolicy, compacting_steps, next_steps
from pequod_lake.stages import Stages
from pequod_lake.writing import FileWriter

_LEASE_S: Final = 30.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step that is done."""

    step: LakeStep
    #: How long it took, and the CPU of this process meanwhile.
    elapsed_s: float
    cpu_s: float

    @property
    def row_count(self) -> int:
        """The number of rows that it read."""
        return sum(run.row_count for run in self.step.runs)


OnStep = Callable[[StepReport], None]


class LakeWorker:
    """Takes steps for as long as it is asked to."""

    def __init__(
        self,
        catalog: LakeCatalog,
        coordinator: Coordinator,
        stages: Stages,
        writer: FileWriter,
        *,
        has_ids: bool,
        policy: MergePolicy,
        at_point: AtPoint = no_point,
        lease_s: float = _LEASE_S,
    ) -> None:
        self._catalog = catalog
        self._coordinator = coordinator
        self._stages = stages
        self._writer = writer
        self._has_ids = has_ids
        self._policy = policy
        self._at_point = at_point
        self._lease_s = lease_s

    def step(self) -> StepReport | None:
        """Take one free step, and do it. Return None if no step is free.

        Raises:
            LakeCorruptError: A file is damaged; the runs stay as they are.
            LakeError: The disk is full; the runs stay as they are.
        """
        now = self._catalog.now()
        runs = self._catalog.snapshot().runs
        return self._taken(next_steps(runs, self._policy, has_ids=self._has_ids, age_s=lambda stamp: stamp.age_s(now)))

    def _taken(self, steps: Sequence[LakeStep]) -> StepReport | None:
        if not steps:
            return None
        worker = self._writer.id
        claimed = self._coordinator.claim(steps, worker, self._lease_s)
        if claimed is None:
            return None
        start_s, start_cpu_s = monotonic(), process_time()
        self._at_point(f"{claimed.kind.value}.claimed")
        try:
            with self._renewed(claimed, worker):
                new = self._stages.work(claimed)
                self._at_point(f"{claimed.kind.value}.written")
                self._catalog.replace(claimed.runs, new)
        except StepLostError:
            # Without those that it left as they are: the catalog has them.
            before = {file.path for run in claimed.runs for file in run.files}
            self._writer.remove(file for file in new.files if file.path not in before)
            return StepReport(claimed, monotonic() - start_s, process_time() - start_cpu_s)
        except WriterLostError as error:
            # Its lease has ended with it: the step is free, for this worker under a new name as for others.
            self._writer.renew(error.writer)
            return StepReport(claimed, monotonic() - start_s, process_time() - start_cpu_s)
        except LakeCorruptError:
            self._coordinator.release(claimed, worker)
            if set(claimed.ids) <= {run.id for run in self._catalog.snapshot().runs}:
                raise
            # Another worker has done the step and the files have expired since.
            return StepReport(claimed, monotonic() - start_s, process_time() - start_cpu_s)
        except BaseException:
            self._coordinator.release(claimed, worker)
            raise
        self._at_point(f"{claimed.kind.value}.replaced")
        return StepReport(claimed, monotonic() - start_s, process_time() - start_cpu_s)

    def run(self, stop: threading.Event, on_step: OnStep | None = None) -> None:
        """Do steps until ``stop`` is set."""
        while not stop.is_set():
            try:
                report = self.step()
            except LakeBusyError:
                report = None
            if report is None:
                stop.wait(_POLL_S)
            elif on_step is not None:
                on_step(report)

    def drain(self, on_step: OnStep | None = None) -> None:
        """Do steps until there is none."""
        while (report := self.step()) is not None:
            if on_step is not None:
                on_step(report)

    def compact(self, on_step: OnStep | None = None) -> None:
        """Bring everything that is committed now into the authority, beside other workers."""
        wanted = self._catalog.snapshot().scu
        while (runs := self._catalog.snapshot().runs)[0].last_scu < wanted:
            committed = [run for run in runs if run.first_scu <= wanted]
            report = self._taken(compacting_steps(committed, has_ids=self._has_ids))
            if report is None:
                # Another worker has a step that is needed first.
                threading.Event().wait(_POLL_S)
            elif on_step is not None:
                on_step(report)

    def close(self) -> None:
        """End the worker: what it has written and the catalog does not name is swept away from now on."""
        self._writer.close()

    @contextmanager
    def _renewed(self, step: LakeStep, worker: str) -> Iterator[None]:
        """Keep the lease of a step while it is being done."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(self._lease_s / 3):
                with suppress(LakeBusyError):
                    self._coordinator.renew(step, worker, self._lease_s)

        thread = threading.Thread(target=renew, name="lake-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
