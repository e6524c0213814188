"""Open files: a daemon with a hundred consoles needs more than the usual soft limit of 1,024."""

import resource

WANTED = 65_536


def raise_descriptors() -> None:
    """Raise the soft limit of this process towards the hard one; a lower hard one is no error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
