"""Findings of checks of this machine or of an engine, and how they are printed.

`houston doctor` and `houston engine check` print them alike: a line, then what to do. The module
itself checks nothing.
"""

from dataclasses import dataclass
from typing import Literal

from houston_shared import command_output


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """What one check found, and what to do about it."""

    name: str
    state: Literal["ok", "warn", "fail", "skip"]
    text: str
    next: str = ""


def ok_finding(name: str, text: str) -> CheckFinding:
    """All is well."""
    return CheckFinding(name, "ok", text)


def print_finding(finding: CheckFinding, as_json: bool, width: int = 12) -> None:
    """One line, with the next command below it; or one JSON object. width: of the names' column."""
    if as_json:
        fields = {"check": finding.name, "state": finding.state}
        fields |= {"found": finding.text, "next": finding.next}
        return command_output.print_json_line(fields)
    command_output.print_line(f"{finding.state:<5}{finding.name:<{width}} {finding.text}")
    if finding.next:
        command_output.print_line(f"     {'':<{width}} next: {finding.next}")
