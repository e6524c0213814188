"""Where a rollout has a part of another machine, as it was started. Nothing is asked here."""

import msgspec

from houston_daemon.hosts.ssh.settings import settings_of
from houston_shared.config_hosts import Host
from houston_shared.records import RolloutSpec


class There(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout's part of another machine."""

    host: str
    """Name of the machine."""
    settings: Host
    key: str
    """What tells the rollout's home from others there."""

    def folder(self, rollout: str) -> str:
        """Where the machine keeps it, as people name it."""
        root = self.settings.host_root or "the state folder of its user"
        return f"{root}: rollouts/{rollout}"


def there(spec: RolloutSpec, host: str) -> There:
    """The part that a rollout has on one of its machines."""
    return There(host=host, settings=settings_of(spec.hosts[host]), key=spec.host_key)
