"""What the user of a machine keeps secret there: no sandbox may map it."""

from pathlib import Path

from platformdirs import user_config_path

KEYS = (".ssh", ".gnupg", ".aws", ".netrc", ".config/gcloud", ".kube", ".docker")
"""What the user's home folder keeps secret."""


def secret_places() -> tuple[Path, ...]:
    """Keys, and the user's configuration of Houston."""
    user = Path.home()
    return (user_config_path("houston"), *(user / key for key in KEYS))
