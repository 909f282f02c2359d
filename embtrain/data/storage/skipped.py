"""Records that a reader passes over: their number and the first place, for one line of warning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Skipped:
    """Number of records that a reader passed over, and the place of the first."""

    n: int = 0
    first: str = ""

    def add(self, place: str) -> None:
        """Count a record at `place`, FILE:LINE."""
        self.n, self.first = self.n + 1, self.first or place

    def lines(self, one: str, several: str) -> tuple[str, ...]:
        """Return the warning, with the noun and verb of `counted`; empty if nothing was passed over."""
        return (f"{self.first}: {counted(self.n, one, several)}",) if self.n else ()


def counted(n: int, one: str, several: str) -> str:
    """Return a number with what follows it: the words for one, or those for several."""
    return f"{n:,} {one if n == 1 else several}"
