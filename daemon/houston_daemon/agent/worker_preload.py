"""The modules that workers are forked with: the worker, and the most common environment.

Imported once by the process that forks workers (`service.fork_server`). A worker with another
environment imports that itself.
"""

import houston_daemon.agent.rollout_worker
import houston_daemon.agent.shared_worker
import houston_daemon.environments.null_environment
import houston_daemon.environments.workstation.workstation_environment  # noqa: F401
