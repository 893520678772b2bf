"""The one error that a report raises."""

from __future__ import annotations


class ReportError(Exception):
    """A report that cannot be written: what is wrong, the value that was found, and what to do about it."""

    def __init__(self, what: str, value: object, remedy: str) -> None:
        self.what, self.value, self.remedy = what, str(value), remedy
        super().__init__(f"{what}: {self.value}; {remedy}")
