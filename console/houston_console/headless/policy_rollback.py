"""`houston policy rollback`: what new rollouts of an engine sampled with before, again."""

import argparse

from houston_console.headless import policy_activate
from houston_shared.config import Loaded


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--engine`, `--wait`, `--as`, `--json`."""
    policy_activate.add_options(parser)


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Take the newest activation back; once more takes back the one before."""
    return policy_activate.ask(arguments, loaded, "", rollback=True)
