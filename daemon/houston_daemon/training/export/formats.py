"""The format of a name: the one place that knows all of them."""

from houston_daemon.training.export.format import Format
from houston_daemon.training.export.openai import OPENAI
from houston_daemon.training.export.raw import RAW
from houston_daemon.training.export.slime import SLIME
from houston_daemon.training.export.trl import TRL
from houston_daemon.training.export.trl_chat import TRL_CHAT
from houston_shared.errors import ExitCode, HoustonError

FORMATS = {one.name: one for one in (TRL, TRL_CHAT, SLIME, OPENAI, RAW)}


def choose_format(name: str, parquet: bool = False) -> Format:
    """The format called `name`; raises HoustonError where there is none, or no parquet of it."""
    found = FORMATS.get(name)
    if found is None:
        raise HoustonError(
            f"There is no format {name!r}; known: {', '.join(FORMATS)}.",
            "Nothing was exported.",
            code=ExitCode.USAGE,
        )
    if parquet and found.only_lines:
        raise HoustonError(
            f"There is no parquet file for {name}: {found.only_lines}.",
            "Nothing was exported.",
            "the same without --parquet",
            ExitCode.USAGE,
        )
    return found
