"""What workers are forked with: the worker, and the environment that most of them have.

Imported once by the process that forks workers (`service.fork_server`). Another environment is
imported by the worker that needs it.
"""

import houston_daemon.agent.rollout_worker
import houston_daemon.agent.shared_worker
import houston_daemon.environments.null_environment
import houston_daemon.environments.workstation.workstation_environment  # noqa: F401
