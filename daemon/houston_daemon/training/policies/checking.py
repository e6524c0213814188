"""Whether the files of policies are still what was registered. Changes nothing.

For all of them, every byte is read, and weights that were removed as a whole are no damage:
somebody made room, or a backup left them out. For one that is to be used they must be there.
"""

from houston_daemon.training.policies import hashing
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.policy_names import policies_folder
from houston_shared.store.bodies_training import PolicyRegistered
from houston_shared.store.queries import policies
from houston_shared.store.queries.policies import Policy
from houston_shared.store.reader import Reader


def check(home: Home, policy: Policy) -> PolicyRegistered | None:
    """What was registered, None where that was erased.

    Raises HoustonError unless its files are there and what was registered: the ledger names them.
    Hashes of files that have not changed are remembered.
    """
    with Reader(home) as reader:
        said = reader.run(policies.registered(policy))
    if said is None or not said.files:
        return said
    folder = policies_folder(home) / policy.folder
    if not folder.is_dir():
        raise HoustonError(
            f"The files of {policy.name} are not in {folder} any more.",
            next="Fetch them back from a backup, or name another: houston policy list",
        )
    if hashing.of_files([folder / name for name in said.files], home) != said.files:
        raise HoustonError(
            f"The files in {folder} are not those that were registered as {policy.name}.",
            next="houston verify",
        )
    return said


def changed(home: Home) -> list[str]:
    """A sentence for every file that is not as it was; every byte is read. Raises HoustonError."""
    found = []
    with Reader(home) as reader:
        for policy in reader.run(policies.every()):
            said = reader.run(policies.registered(policy))
            folder = policies_folder(home) / policy.folder
            if said is None or not policy.folder or not folder.is_dir():
                continue
            for name, digest in sorted(said.files.items()):
                try:
                    now = hashing.of_file(folder / name)
                except OSError as problem:
                    found.append(f"{folder / name} cannot be read: {problem.strerror}.")
                    continue
                if now != digest:
                    found.append(f"{folder / name} is not the file that was registered.")
    return found
