"""How to install a missing program on this machine, in words for the person who asks.

Only advice: nothing is installed. Which programs are needed is known where they are used.
"""

import os
import shutil
from pathlib import Path

APT = Path("/usr/bin/apt-get")


def advise_install(package: str) -> str:
    """The command that installs a package of Debian's name; by sudo, or somebody else, if need be.

    Without apt the package is named and the command is left to who knows the machine.
    """
    if not APT.is_file():
        return f"Install {package} with this machine's package manager"
    command = f"apt install {package}"
    if os.geteuid() == 0:
        return command
    if shutil.which("sudo"):
        return f"sudo {command}"
    return f"Ask an administrator for: {command}"
