"""How often models solve a suite's tasks before anything is learned: data that was measured.

Each row has the command that measured it. Rates are for orientation: a suite is of use to a model
that solves 5 to 30 % of it. Measures nothing.
"""

from importlib.resources import files

import msgspec

from houston_shared.toml_file import parse_toml

FILE = "base_rates.toml"


class BaseRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One measurement."""

    suite: str
    model: str
    split: str
    solved: int
    """Worlds that were solved."""
    worlds: int
    command: str
    note: str = ""


class _Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: tuple[BaseRate, ...] = ()


def base_rates() -> tuple[BaseRate, ...]:
    """All that were measured."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return msgspec.convert(parse_toml(text, FILE), _Rates).rate
