"""The command that serves a model with the vLLM that Houston installed, and its extra arguments."""

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from houston_daemon.engines.local_machine import has_fast_bfloat16
from houston_daemon.engines.vllm_install import has_nvidia_gpu, vllm_path
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError

RESERVED_VLLM_ARGS = frozenset(
    {"--host", "--port", "--uds", "--model", "--served-model-name", "--api-key", "--config"}
    | {"--logprobs-mode", "--headless", "--ssl-keyfile", "--ssl-certfile", "--root-path"}
)
"""Arguments of `vllm serve` by which Houston finds it, and what its samples are exact by."""
MAX_LOADED_ADAPTERS = 8
"""Adapters that a vLLM of ours keeps in memory; two are mixed in one batch."""


def vllm_command(
    model: Path,
    port: int,
    eager: bool | None = None,
    adapters: int = MAX_LOADED_ADAPTERS,
    *,
    variables_given: Collection[str] = (),
    args: Sequence[str] = (),
) -> list[str]:
    """Return the command that serves `model` on the loopback address with the installed vLLM.

    eager: skip compilation: ready in 28 s instead of 84 s, two thirds of the speed (measured on
    two processors); None: on the CPU only. adapters: how many it keeps in memory; 0 takes none.
    variables_given: those that the environment of the process sets itself, which win. args: further
    arguments; the last of two counts. Raises HoustonError when vLLM is not installed, and
    ConfigurationError for arguments that are Houston's.
    """
    check_vllm_args(args)
    folder = vllm_path()
    if folder is None:
        raise HoustonError(
            "vLLM is not installed.",
            next="houston doctor --install-engine",
            code=ExitCode.CONFIGURATION,
        )
    gpu = has_nvidia_gpu()
    variables = {"HF_HUB_OFFLINE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    variables |= {"VLLM_NO_USAGE_STATS": "1"} | ({} if gpu else _cpu_environment())
    ours = [f"{key}={value}" for key, value in variables.items() if key not in variables_given]
    command = ["/usr/bin/env", *ours]
    command += [str(folder / "bin" / "vllm"), "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--enable-prompt-tokens-details"]
    command += ["--disable-uvicorn-access-log"]  # the ledger has every request
    # A model's own generation_config.json would bend what is drawn (top_k, penalties) unrecorded.
    command += ["--generation-config", "vllm"]
    # Without free whitespace: a small model otherwise runs off into blanks (3 of 16 samples).
    structured = {"backend": "guidance", "disable_any_whitespace": True}
    command += ["--structured-outputs-config", json.dumps(structured)]
    if adapters:
        command += ["--enable-lora", "--max-loras", str(min(2, adapters))]
        command += ["--max-cpu-loras", str(adapters), "--max-lora-rank", "64"]
    if not gpu and not has_fast_bfloat16():
        command += ["--dtype", "float32"]  # the model's own is bf16: nine times as slow there
    eager = not gpu if eager is None else eager
    return [*command, *(["--enforce-eager"] if eager else ()), *args]


def check_vllm_args(args: Sequence[str]) -> None:
    """Raise ConfigurationError for arguments of `vllm serve` that Houston sets or relies on."""
    for argument in args:
        name = argument.split("=", 1)[0].replace("_", "-")
        # argparse takes a beginning of a long option for it.
        short = name.startswith("--") and any(
            own.startswith(name) for own in RESERVED_VLLM_ARGS if len(name) > 4
        )
        if name in RESERVED_VLLM_ARGS or short:
            raise ConfigurationError(
                f"`args` may not name {argument.split('=', 1)[0]}: Houston sets it.",
                next="To start the server in another way, set `command`.",
            )


def _cpu_environment() -> dict[str, str]:
    """How vLLM shares a processor with simulators, tools and trainers.

    Threads that wait for each other sleep: spinning, they take turns with what runs beside them.
    By itself vLLM would leave one core to others: of two, that is half.
    """
    shared = {"VLLM_CPU_KVCACHE_SPACE": "2", "OMP_WAIT_POLICY": "PASSIVE"}
    few = len(os.sched_getaffinity(0)) <= 2
    return shared | ({"VLLM_CPU_NUM_OF_RESERVED_CPU": "0"} if few else {})
