"""Whether the files of policies are still what was registered. Changes nothing.

Weights that were removed as a whole are no damage: somebody made room, or a backup left them out.
"""

from houston_daemon.training.policies import hashing
from houston_shared.home import Home
from houston_shared.policy_names import policies_folder
from houston_shared.store.queries import policies
from houston_shared.store.reader import Reader


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
