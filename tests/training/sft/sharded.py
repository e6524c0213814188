"""The trainer as a module for `accelerate launch`, in shards although there are no GPUs.

accelerate shards on accelerators only: processors are plain data parallelism to it, whatever its
configuration says. Here they are taken for accelerators; FSDP itself, over gloo, is the real one.
"""

import sys
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType

from houston_daemon.training.sft import __main__ as program


def _as_accelerators(self: Any, *args: Any, **more: Any) -> tuple[str, DistributedType]:
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    return "gloo", DistributedType.MULTI_GPU


def _on_processor(self: Any) -> None:
    self.device = torch.device("cpu")


if __name__ == "__main__":
    PartialState._prepare_backend = _as_accelerators
    PartialState.set_device = _on_processor
    sys.exit(program.main())
