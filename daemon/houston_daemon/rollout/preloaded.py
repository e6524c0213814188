"""What workers are forked with: the worker, and the environment that most of them have.

Imported once by the process that forks them (`service.nursery`). Another environment is imported
by the worker that needs it.
"""

import houston_daemon.environments.workstation.workstation_environment
import houston_daemon.rollout.worker  # noqa: F401
