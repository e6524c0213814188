"""Starts the embedded server: `python -m houston_daemon.engines.embedded --model DIR --port N`.

It loads the model before it listens, so an open port means that it can answer. It listens only on
the loopback address or on a socket file.
"""

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

from houston_daemon.service.parent_death import end_with_parent
from houston_shared.redacted_logging import log_redacted_to_stderr

LOGGER = logging.getLogger("houston.embedded")
MIN_CACHE_TOKENS = 8192
"""Of a model with a small window: what a hundred short rollouts have between two answers."""


def main() -> int:
    """Parse the command line and serve until told to end."""
    arguments = _arguments()
    if arguments.die_with_parent:
        parent = os.getppid()
        if parent == 1 or not end_with_parent(parent, signal.SIGTERM):
            return 0
    log_redacted_to_stderr("%(asctime)s %(levelname)s %(message)s")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch
    import uvicorn

    from houston_daemon.engines.embedded.embedded_model import EmbeddedModel
    from houston_daemon.engines.embedded.embedded_server import EmbeddedServer
    from houston_daemon.engines.embedded.sampling_jobs import JobSampler, JobScheduler

    torch.set_num_threads(arguments.threads)
    model = EmbeddedModel(arguments.model, arguments.dtype)
    cache_tokens = arguments.cache_tokens or max(3 * model.window, MIN_CACHE_TOKENS)
    scheduler = JobScheduler(JobSampler(model, cache_tokens))
    scheduler.start()
    name = arguments.name or arguments.model.name
    LOGGER.info("serving %s, %s, %d threads", name, model.dtype, arguments.threads)
    uvicorn.run(
        EmbeddedServer(model, scheduler, name).app(),
        host="127.0.0.1",
        port=arguments.port or 0,
        uds=arguments.uds,
        log_level="warning",
        timeout_graceful_shutdown=2,
    )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="houston-embedded", description="The embedded engine.")
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--port", type=int, help="port on the loopback address")
    place.add_argument("--uds", help="path of a socket file instead of a port")
    parser.add_argument("--name", default="", help="name in requests; default: the folder's")
    parser.add_argument("--dtype", choices=("auto", "bfloat16", "float32"), default="auto")
    parser.add_argument(
        "--threads",
        type=int,
        # Half the processors: torch's threads spin while they wait for each other, and on a busy
        # machine with one thread per processor a token took minutes instead of milliseconds.
        default=max(1, min(16, (os.cpu_count() or 2) // 2)),
        help="threads of a forward pass; default: half the processors",
    )
    parser.add_argument("--cache-tokens", type=int, default=0, help="tokens of idle prefix caches")
    parser.add_argument(
        "--die-with-parent",
        action="store_true",
        help="end with the thread that started this process, and so with its process",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
