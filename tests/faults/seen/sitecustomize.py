"""Makes processes under test meet the faults that are ordered, and workers write down what they
say and hear.

Python imports this by itself when its folder is on PYTHONPATH, before the modules that mark points.
A worker's messages are witnessed in a fork server, whose workers are forked from it: each line
goes to `$HOUSTON_WITNESS` with one write, before a message is sent and after its answer was read,
so that what a worker knew survives its death.
"""

import os
import sys
import traceback

STARTER = "houston_daemon.service.fork_server"

try:
    if orders := os.environ.get("HOUSTON_FAULTS"):
        from houston_shared import faults
        from tests.faults import injection

        faults.point = injection.ordered_point(orders)

    if STARTER in sys.orig_argv and "HOUSTON_WITNESS" in os.environ:
        from tests.faults import spared, witness

        if folder := os.environ.get(spared.VARIABLE):
            spared.attend(folder)
        witness.attend(os.environ["HOUSTON_WITNESS"])
except BaseException:  # noqa: BLE001 Python goes on without this module, and no fault would come
    traceback.print_exc()
    os._exit(70)
