"""Objects that a `with` block closes at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """An object that a `with` block closes at its end."""

    def __enter__(self) -> Self:
        """Return the object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the object."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End the object's work; each class says how."""
