"""The table of commands of `houston`: by subject, what each does, and an example of each.

Only text: nothing is imported here, so that every command starts quickly. `command` finds a command
in it and runs it; help, completion and docs/command-line.md are made from it.
"""

from typing import NamedTuple


class CommandSpec(NamedTuple):
    """One command."""

    words: tuple[str, ...]
    """What is typed behind `houston`."""
    module: str
    """Where its `add_…_arguments` and `run_…` are."""
    help: str
    """One line."""
    example: str
    """Arguments that mean something, as a shell reads them."""


def _build_commands(*rows: tuple[str, str, str, str]) -> tuple[CommandSpec, ...]:
    """rows: words, module, help, example; `daemon.x` is short for `houston_daemon.commands.x`."""
    commands = []
    for words, module, help, example in rows:
        if not module.startswith("houston_"):
            module = f"houston_{module.replace('.', '.commands.')}"
        commands.append(CommandSpec(tuple(words.split()), module, help, example))
    return tuple(commands)


_ROLLOUTS = _build_commands(
    ("rollout start", "daemon.rollout_operator_commands",
     "start rollouts of a task", "count-words/task.toml -n 4 --engine big"),
    ("rollout import", "daemon.rollout_import_commands",
     "import what another program sampled", "jobs/today/hello__abc logs/addition.eval"),
    ("rollout list", "console.rollout_view_commands",
     "list rollouts by urgency", "--state running"),
    ("rollout show", "console.rollout_view_commands", "show one rollout", "k3f9"),
    ("rollout html", "console.rollout_html_command",
     "write a rollout as an HTML page", "k3f9 --out page.html"),
    ("rollout compare", "console.rollout_view_commands",
     "show two rollouts side by side", "k3f9 m2p4"),
    ("rollout people", "console.rollout_view_commands",
     "who looked at a rollout, and how long", "k3f9 --with-past"),
    ("rollout pause", "console.rollout_control_commands",
     "pause rollouts", "k3f9 --reason 'the disk is full'"),
    ("rollout resume", "console.rollout_control_commands", "resume paused rollouts", "k3f9"),
    ("rollout cancel", "console.rollout_control_commands",
     "end rollouts for good", "k3f9 --reason 'wrong corpus'"),
    ("rollout branch", "console.rollout_control_commands",
     "start a branch from a step", "k3f9@12 --guidance 'Try the other parser.'"),
    ("rollout restore", "daemon.rollout_operator_commands",
     "write the workspace of a step into a folder", "k3f9@12 --out there"),
    ("rollout printed", "daemon.rollout_operator_commands",
     "fetch a terminal's log from another machine", "k3f9 main --host gpu2 --out log"),
    ("rollout clean", "console.rollout_control_commands",
     "free a rollout's space on its host", "--ended-before 7d"),
    ("rollout archive", "daemon.rollout_erasure_commands",
     "move a rollout's texts into a file", "k3f9 --out /mnt/archives --yes"),
    ("rollout erase", "daemon.rollout_erasure_commands",
     "erase a step, or a leaked secret", "k3f9@12 --reason 'a password' --yes"),
    ("steps", "console.step_commands", "show the steps of a rollout", "k3f9 --from 3"),
    ("context", "console.step_commands", "show what the model saw at a step", "k3f9@12 --diff"),
    ("files", "console.step_commands",
     "changed files, with diffs; the agent's searches", "k3f9 answer.json"),
    ("jobs", "console.job_commands",
     "commands that an agent left running, and how they ended", "k3f9 --state failed"),
    ("search", "console.search_command", "find text in all rollouts", "'out of memory' -n 5"),
    ("tail", "console.journal_commands", "follow steps as they come", "-f --task count-words"),
    ("ask", "daemon.ask_commands",
     "ask a question; answer, steps and sources", "'When was Ivers Quay founded?' --corpus notes/"),
)  # fmt: skip
_REVIEW = _build_commands(
    ("console", "houston_console.console_command", "open the annotators' screen", "k3f9"),
    ("guide", "console.guidance_commands",
     "say something to an agent", "k3f9 'Read README.md first.' --wake"),
    ("guidance", "console.guidance_commands", "list guidance, and when it was delivered", "k3f9"),
    ("since", "console.since_command", "what happened since you were here", "k3f9 --peek"),
    ("claim", "console.claim_commands",
     "look after a rollout; leave a note", "k3f9 --note 'until noon'"),
    ("hand-over", "console.claim_commands",
     "hand a rollout over to somebody, with a note", "k3f9 ben --note 'the index is stale'"),
    ("bookmark", "console.annotation_commands",
     "mark a step for everybody, with a note", "k3f9@12 --note 'here it turns'"),
    ("verdict", "console.annotation_commands",
     "keep or mask steps; show their verdicts", "k3f9 7-9 mask --reason 'blind edits'"),
    ("judge", "daemon.judge_commands",
     "judge steps by rules or a model; report agreement", "k3f9 m2p4 --engine big"),
    ("label", "daemon.label_commands",
     "label what each decision was worth, for train prm", "--suite-run collected --judge big"),
    ("critique", "daemon.critique_commands",
     "what a critic advises an agent to do differently", "k3f9 -n 3"),
)  # fmt: skip
_TRAINING = _build_commands(
    ("export", "daemon.export_commands",
     "write training rows for other trainers", "k3f9 m2p4 --format trl --out rows"),
    ("train sft", "daemon.train_sft_commands",
     "train a model on rows of rollouts", "k3f9 m2p4 --recipe small"),
    ("train dapo", "daemon.train_rl_commands",
     "train a policy on rollouts of a suite (DAPO)", "--suite word-worlds --engine tiny"),
    ("train grpo", "daemon.train_rl_commands",
     "train a policy with GRPO's settings", "--suite word-worlds --engine tiny"),
    ("train echo", "daemon.train_echo_commands",
     "train policy and critic (ECHO), or critic on guidance",
     "--suite word-errands --engine tiny --recipe echo_small"),
    ("train usefulness", "daemon.train_usefulness_commands",
     "whether a critic helped, by thirds of a run (ECHO)", "echo-k3f9 echo-m2p4"),
    ("train drift", "daemon.train_drift_commands",
     "how a run's failures changed (ECHO)", "echo-k3f9 --critiques 2"),
    ("train prm", "daemon.train_prm_commands",
     "train a process reward model on labels", "--labels labels.jsonl"),
    ("train list", "console.training_run_commands",
     "list training runs and their progress", "--json"),
    ("train show", "console.training_run_commands", "show one training run", "sft-k3f9"),
    ("train cancel", "console.training_run_commands",
     "end a training run", "sft-k3f9 --reason 'wrong base'"),
    ("policy list", "console.policy_view_commands",
     "list policies, and which are active", "--json"),
    ("policy show", "console.policy_view_commands", "show where a policy comes from", "policy@2"),
    ("policy activate", "console.policy_view_commands",
     "let new rollouts sample with a policy", "policy@2"),
    ("policy rollback", "console.policy_view_commands",
     "activate the previous policy again", "--engine big"),
    ("policy merge", "daemon.policy_commands",
     "merge base and adapter into one model", "policy@2 --out merged"),
    ("policy export", "daemon.policy_commands",
     "write a policy as a GGUF file", "policy@2 --format gguf --out policy.gguf"),
    ("policy import", "daemon.policy_commands",
     "import an external policy", "adapter/ --note 'trained elsewhere'"),
    ("policy pull", "daemon.policy_commands",
     "import a policy from the Hugging Face hub", "org/name@main --note 'trained elsewhere'"),
    ("policy push", "daemon.policy_commands",
     "push a policy to the Hugging Face hub, with its lineage", "policy@2 org/name --private"),
    ("policy tiny", "daemon.tiny_policy_commands",
     "make a small model that learns in minutes", "--out tiny --level easy"),
    ("policy warm", "daemon.warm_up_commands",
     "warm a language model up for a suite", "--suite small-workstation --out warm"),
    ("experiment", "daemon.experiment_commands",
     "measure what guidance and masks are worth", "small --out measured"),
)  # fmt: skip
_TASKS = _build_commands(
    ("task new", "daemon.task_commands",
     "write a task folder to start from", "lab --from scienceworld"),
    ("task import", "daemon.task_commands",
     "import a task of Harbor or InnovatorBench", "task_1.yaml --out imported"),
    ("task image", "daemon.task_image_commands",
     "use a container image as a task's programs", "lab python:3.12"),
    ("task validate", "daemon.task_commands", "check a task file", "count-words/task.toml"),
    ("task list", "console.rollout_view_commands", "list the tasks of this home", "--packaged"),
    ("suite list", "daemon.suite_commands", "generated tasks, and how models do on them", "--json"),
    ("suite run", "daemon.suite_commands",
     "measure a policy on a suite", "word-worlds --engine tiny -n 50"),
    ("evaluate", "daemon.evaluate_commands",
     "evaluate a policy; compare two policies or results",
     "word-worlds --engine tiny --before base --policy policy@2"),
)  # fmt: skip
_DATA = _build_commands(
    ("log", "console.journal_commands",
     "show the journal; --audit for who did what", "--audit -n 20"),
    ("verify", "daemon.maintenance_commands", "check every byte of the store", "--json"),
    ("repair", "daemon.maintenance_commands",
     "set damaged events aside, rebuild the rest", "--json"),
    ("backup", "daemon.maintenance_commands",
     "copy the home while the daemon runs; restore a copy", "--out /mnt/backups"),
)  # fmt: skip
_SERVICE = _build_commands(
    ("demo", "daemon.demo_commands", "a tour of Houston on the embedded model", "--headless"),
    ("doctor", "daemon.doctor_commands",
     "check this machine; fetch model and engine", "--fetch-model"),
    ("daemon start", "daemon.daemon_commands",
     "start the daemon; returns when ready", "--foreground"),
    ("daemon stop", "daemon.daemon_commands", "drain and stop the daemon", "--keep-engine"),
    ("daemon restart", "daemon.daemon_commands", "stop and start; engines keep running", "--json"),
    ("daemon status", "daemon.daemon_status_commands", "show what the daemon is doing", "--json"),
    ("daemon logs", "daemon.daemon_status_commands",
     "show or follow the daemon's log", "-f -n 100"),
    ("daemon install-service", "daemon.daemon_commands",
     "write the daemon's systemd unit", "--user --dry-run"),
    ("notify test", "daemon.notify_commands",
     "send a test message to all [notify] urls", "--json"),
    ("engine list", "daemon.engine_list_commands",
     "list the engines, and the state of each of their servers", "--json"),
    ("engine check", "daemon.engine_commands",
     "whether rollouts can sample from an engine", "big --seconds 60"),
    ("env serve", "daemon.env_serve_commands",
     "serve a task or suite as OpenEnv, for other trainers", "word-worlds --port 8000"),
    ("mcp serve", "daemon.mcp_serve_commands",
     "serve the python and search tools over MCP", "--python --corpus notes/"),
    ("host add", "daemon.host_commands",
     "let workers of another machine in; write the file it needs", "gpu2 --out gpu2.endpoint.json"),
    ("host list", "daemon.host_commands", "list machines whose workers may connect", "--json"),
    ("host remove", "daemon.host_commands", "stop letting a machine in, at once", "gpu2"),
    ("host check", "daemon.host_commands",
     "on such a machine: whether the daemon accepts it", "gpu2.endpoint.json"),
    ("host-serve", "daemon.host_serve_commands", "what another node starts here over SSH", ""),
    ("completion", "houston_shared.completion_command",
     "complete commands and flags in your shell",
     "bash > ~/.local/share/bash-completion/completions/houston"),
)  # fmt: skip
SECTIONS = {
    "rollouts": _ROLLOUTS,
    "guidance and review": _REVIEW,
    "policies and training": _TRAINING,
    "tasks and suites": _TASKS,
    "data": _DATA,
    "service": _SERVICE,
}
"""Commands by what they are about."""
COMMANDS = tuple(command for section in SECTIONS.values() for command in section)
