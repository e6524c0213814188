"""Write docs/configuration.md and docs/task-file.md from the structs that read those files,
docs/attention.md from the signals, docs/rules.md from the rules, docs/families.md from the dialects
and their tests, docs/command-line.md from the table of commands, and docs/actions.md from the types
of the actions.

    python docs/generate.py [--check]

Each key's text is the sentence under its field, so that what a person reads and what the program
allows cannot part.
"""

import ast
import contextlib
import re
import sys
from pathlib import Path
from typing import Any

from actions_page import actions_page

ROOT = Path(__file__).parent.parent
SHARED = ROOT / "shared" / "houston_shared"
PAGES = {
    "configuration.md": (
        "config.py config_sections.py engine_settings.py",
        "Configuration: houston.toml",
        "Looked for in this order, the first found is used: `--config FILE`, `HOUSTON_CONFIG`, "
        "`houston.toml` in the home that is named, in the current folder, in `trajectories/`. "
        "`HOUSTON__SECTION__KEY=value` in the environment wins over the file, flags win over both; "
        "`--home` or `HOUSTON_HOME` names the home. A wrong key or value is an error that names "
        "the file, the key and what is allowed. A running daemon and open consoles "
        "take an edit at once, or refuse all of it with a sentence (`daemon status`, the daemon's "
        "log, the console's message row) and go on with what they had; a file that is half written "
        "is read when it is whole. After `houston daemon restart`, which costs rollouts nothing, "
        "and named in `daemon status` until then: `home`, `daemon.group`, `daemon.drain_seconds`, "
        "`daemon.silent_seconds`, `daemon.log_mb`, `daemon.log_files`, `[metrics]`, `[recorder]`, "
        "`hosts.root`, `gpus` of hosts, `[ray]`, `[secrets]`, `notify.urls`. An engine that the "
        "daemon started and that is in use is made anew when no rollout uses it any more. "
        "`console.name` and `keys.toml` count when a console is opened. Task files of this home "
        "(`task.toml` and its "
        "`instructions_file`) and "
        "`recipes/*.toml` beside houston.toml are checked when they are edited: `daemon status` "
        "says what is wrong with them, `task list` which task is changed or broken. Rollouts that "
        "run keep what they started with. Recipes are named by their path: `houston train sft R… "
        "--recipe recipes/mine.toml`. Variables of a running daemon cannot be edited.",
        [
            ("Configuration", "(top)"),
            ("DaemonSettings", "[daemon]"),
            ("MetricsSettings", "[metrics]"),
            ("RecorderSettings", "[recorder]"),
            ("TelemetrySettings", "[telemetry]"),
            ("HostsSettings", "[hosts]"),
            ("HostSettings", "[hosts.NAME]"),
            ("RaySettings", "[ray]"),
            ("ConsoleSettings", "[console]"),
            ("BackupSettings", "[backup]"),
            ("ArtifactSettings", "[artifacts]"),
            ("RoleSettings", "[roles]"),
            ("SecretSettings", "[secrets]"),
            ("ExportSettings", "[export]"),
            ("WebSearchSettings", "[tools.search]"),
            ("WebBrowseSettings", "[tools.browse]"),
            ("MultimodalSettings", "[tools.multimodal]"),
            ("JudgeSettings", "[judge]"),
            ("ReviewSettings", "[review]"),
            ("NotifySettings", "[notify]"),
            ("EngineSettings", "[engines.NAME]"),
        ],
    ),
    "rl-recipe.md": (
        "../../daemon/houston_daemon/training/rl/rl_recipe.py",
        "The recipe of reinforcement learning",
        "A TOML file, or the packaged `dapo`, `grpo`, `echo`, `echo_small`, `planner` and `small`; "
        "`--set key=value` changes a key for one run of `houston train dapo`, `grpo` or `echo` "
        "([reinforcement learning](reinforcement-learning.md), [critic](critic.md)).",
        [("RlRecipe", "Keys")],
    ),
    "prm-recipe.md": (
        "../../daemon/houston_daemon/training/prm/prm_recipe.py",
        "The recipe of a process reward model",
        "A TOML file, or the packaged `small` and `paper`; `--set key=value` changes a key for one "
        "run of `houston train prm` ([process rewards](process-rewards.md)).",
        [("PrmRecipe", "Keys")],
    ),
    "task-file.md": (
        "task.py task_tables.py",
        "The task file: task.toml",
        "A task is a folder with this file; [tasks](tasks.md) shows a whole one. `houston task new "
        "NAME` writes one that works, `houston task validate FILE` checks one. `name` and one of "
        "`instructions` and `instructions_file` are required; everything else has a default.",
        [
            ("Task", "(top)"),
            ("WorkspaceSettings", "[workspace]"),
            ("BudgetSettings", "[budget]"),
            ("EvaluationSettings", "[evaluate]"),
            ("DataSettings", "[data]"),
            ("HintSettings", "[hints]"),
            ("SandboxSettings", "[sandbox]"),
            ("ResourceSettings", "[resources]"),
            ("AgentSettings", "[agent]"),
            ("AgentRoleSettings", "[agent.summary]"),
            ("MemorySettings", "[agent.memory]"),
            ("SamplingSettings", "[sampling]"),
            ("TaskSearchSettings", "[search]"),
            ("TaskBrowseSettings", "[browse]"),
            ("QuestionSettings", "[questions]"),
            ("PythonToolSettings", "[python]"),
            ("HttpSimulatorSettings", "[http]"),
            ("McpSettings", "[mcp]"),
            ("McpServerSettings", "[mcp.servers.NAME]"),
            ("OpenEnvSettings", "[openenv]"),
            ("VerifiersSettings", "[verifiers]"),
            ("ReasoningGymSettings", "[reasoning_gym]"),
            ("ScienceWorldSettings", "[scienceworld]"),
            ("TextWorldSettings", "[textworld]"),
            ("WordWorldSettings", "[word_world]"),
            ("SmallWorkstationSettings", "[small_workstation]"),
            ("AttentionSettings", "[attention]"),
            ("RuleSettings", "[rules]"),
            ("GuidanceContradiction", "[[rules.guidance]]"),
            ("PurifySettings", "[purify]"),
        ],
    ),
}


REVIEW = ROOT / "daemon" / "houston_daemon" / "review"
SIGNALS_INTRO = """\
Every step is looked at as it closes, cheaply and without a model. What is found is stored with the
step and shown by `houston steps`, `houston rollout list` (of the last {last} steps of rollouts that
have not ended), both with `--json` too (`attention`: names; `attention_reasons`: by name, why), and
counted in `houston_attention_total`. Thresholds are the task's, in [`[attention]`](task-file.md);
0 turns a signal off. The set has version {version}; a step keeps the version that it was looked at
with. Packages bring further ones ([extending](extending.md)); they weigh {unknown}."""
RULES = REVIEW / "rules"
RULES_INTRO = """\
Rules mask steps that a policy should not learn, without a model. While the daemon runs they are
run on every rollout as it goes on, seconds after a step has closed, and their verdicts are stored
and shown (`live_rules` of [`[daemon]`](configuration.md) turns that off). `houston export` and
`houston train sft` run them on every rollout they take ([training](training.md));
`houston judge R --rules-only` runs them by hand, `houston judge R` lets them go before the judge.
Each looks at a whole rollout and may look ahead: what happens later can condemn an earlier step,
and a file that was written wrongly masks the runs that use it. What they say is replaced each time
they run. A rule only ever masks. `houston verdict R@STEP` says which rules mask a step, in which
version, and why; a person's verdict and the judge's outrank them, but what `error_observation`
masks the judge does not keep. A rollout on which a rule fails is named by `houston daemon status`,
and nothing is said of it until that is mended.

Which rules, thresholds and patterns: [`[rules]`](task-file.md) of the task file. Packages bring
further ones ([extending](extending.md)). A step that a branch shares is its parent's to judge."""
RULES_ACCURACY = """\

## How right they are

{count} excerpts of rollouts, judged by hand, as agents and people write them
(`tests/support/rule_cases.toml`): which steps must be masked, by which rule; all others must be
kept. A step counts once for each rule. In brackets Wilson's 95 % interval; counts of steps: masked
rightly, masked wrongly, missed. `python -m tests.support.rule_cases` measures and names what is
wrong; a test fails where a rule falls below 0.9 or 0.8. Rules with few cases are shown to work, not
measured.
"""
RULES_HELD_OUT = """
Of these, {count} were written after the rules were changed, and nothing was changed by them:
"""
RULES_PATTERNS = """
A prohibition in English is found by patterns; each must find steps of these cases that no other
finds. The passive voice (`X must not be used`) found none and is left to the judge.

| pattern of `contradicted_guidance` | recall without it (0.97 with all) |
|---|---|
| `do not use X`, `stop …ing` | 0.74 |
| `avoid X` | 0.81 |
| `no X`; `read X first` | 0.84 each |
| `leave X alone` | 0.87 |
| `… without X`; `hands off X` | 0.90 each |
| `use X instead of Y`; `do not want X`; `X is off-limits` | 0.94 each |

Precision is 1.00 without any of them. Without `you can use X again`, which takes a prohibition
back, one step is masked wrongly: 0.97."""
RULES_BEFORE = """
Before the change, on the same cases, `error_observation@4` had 0.46 / 0.51 (21 right, 25 wrong, 20
missed), `contradicted_guidance@4` 1.00 / 0.16 (5, 0, 26) and `blind_edit@5` 0.29 / 0.45 (5, 12, 6).
A first set of 33 held-out cases gave `error_observation` 1.00 / 0.64 (7, 0, 4),
`contradicted_guidance` 1.00 / 0.86 (6, 0, 1) and `blind_edit` 1.00 / 1.00 (5, 0, 0); the rules were
then changed by them, and they stand among the others. Who wrote the cases also wrote the rules:
what other people's rollouts give is to be measured with people's verdicts
(`houston judge --calibrate`)."""
RULES_REST = """\

## What no rule masks

Sleeping while a job runs, systematic debugging, exploration, and backups are good behaviour, which
a policy should learn. No rule is written against them; an error in what was observed is masked also
there. Tests hold a table of such rollouts on which no rule fires.

## What needs a reader

Of APOLLO's criteria (appendix E) these are the judge's: whether a decision was good, a format of
chains of thought that was designed by hand or not sampled and rejected, finishing too early though
nothing is wrong with the end itself, guidance whose words are not plain or that asks for something,
and a success that the agent claims against what it saw. Rules find plain prohibitions only; what
has a condition (`until`, `unless`, `if`) or is said in the passive voice is left to the judge,
too."""
RANKING = SHARED / "store" / "attention_ranking.py"
PROCESS_REWARDS = SHARED / "store" / "process_reward_queries.py"
JOBS = SHARED / "store" / "job_queries.py"
NEED_INTRO = """\

## Who needs a person

The console and `houston rollout list` order rollouts by need (`need` and `reasons` in `--json`). A
rollout weighs as its heaviest reason, from 0 to 100, and a tenth of each further one. A signal
that somebody has had before them since (a console with a key pressed in the last minute) weighs
half, and so does a rollout that somebody looks at now. Besides signals:

| reason | weight |
|---|---|
| paused by `repair` or `host` (a person must decide) | {repair} |
| paused by `restore` | {restore} |
| handed over to who asks, with a note that they have not read (`handed`) | {handed} |
| handed over to who asks and read, or to anybody and read by nobody; until somebody takes it \
| {handed_read} |
| failed, and nobody has looked at it since | {failed} |
| about to finish low: `near_budget` with a best score under {low} | {low_finish} |
| paused for the engine or a host that is away, or its worker waits for the engine | {engine} |
| paused by another owner | {other} |
| a [job](glossary.md#the-projects-words) failed and no step has closed since: the agent cannot \
know (`job_failed`; for {job_steps} steps after that it weighs as the signal, until another job \
follows it) | {unseen_job} |
| guidance was heard and nobody has seen what followed | {unanswered} |
| guidance is queued for more than {minutes} minutes while the rollout runs | {unheard} |
| ended low, and nobody has looked at it since: finished with `low_finish`, or failed with a best \
score under {low} (`ended_low`) | {ended_low} |
| {weak_steps} or more weak decisions in a row up to the newest that a process reward model \
scored (`weak_decisions`; [process rewards](process-rewards.md)) | {weak} |
| its worker waits (a full disk) | {waits} |
| queued, waiting for a GPU | {gpu} |
| paused by a person | {person} |"""


def constants(file: Path) -> dict[str, Any]:
    """The literal values that a module gives to names at its top."""
    found: dict[str, Any] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        target = node.target if isinstance(node, ast.AnnAssign) else target
        with contextlib.suppress(ValueError):
            value = ast.literal_eval(node.value) if target is not None else None  # type: ignore[attr-defined]
            if isinstance(target, ast.Tuple):
                found |= zip(map(ast.unparse, target.elts), value, strict=True)
            elif target is not None:
                found[ast.unparse(target)] = value
    return found


def need_section(known: dict[str, Any]) -> str:
    """What weighs how much besides signals."""
    paused = known["PAUSED_WEIGHTS"]
    return NEED_INTRO.format(
        repair=paused["repair"],
        restore=paused["restore"],
        engine=paused["engine"],
        handed=known["HANDED_WEIGHT"],
        handed_read=known["HANDED_READ_WEIGHT"],
        failed=known["FAILED_WEIGHT"],
        ended_low=known["ENDED_LOW_WEIGHT"],
        low=f"{known['LOW_SCORE_LIMIT']:g}",
        low_finish=known["SIGNAL_WEIGHTS"]["low_finish"],
        other=known["PAUSED_ELSE_WEIGHT"],
        person=known["PAUSED_BY_PERSON_WEIGHT"],
        unanswered=known["UNANSWERED_WEIGHT"],
        unheard=known["UNHEARD_WEIGHT"],
        minutes=known["UNHEARD_SECONDS"] // 60,
        job_steps=constants(JOBS)["RECENT_STEPS"],
        unseen_job=known["UNSEEN_JOB_WEIGHT"],
        weak_steps=constants(PROCESS_REWARDS)["WEAK_RUN_STEPS"],
        weak=known["WEAK_DECISIONS_WEIGHT"],
        waits=known["WAITING_WEIGHT"],
        gpu=known["GPU_WAIT_WEIGHT"],
    )


def signals_page() -> str:
    """The page of signals: names from the catalog, sentences from their functions."""
    catalog_file = REVIEW / "attention_catalog.py"
    catalog = catalog_file.read_text(encoding="utf-8")
    table = re.findall(r'^    "(\w+)": (?:(\w+)\.)?(\w+),', catalog, re.M)
    known = constants(RANKING)
    version, last = constants(catalog_file)["SIGNALS_VERSION"], known["LAST_STEPS"]
    weights, unknown = known["SIGNAL_WEIGHTS"], known["UNKNOWN_SIGNAL_WEIGHT"]
    told = SIGNALS_INTRO.format(version=version, last=last, unknown=unknown)
    parts = ["# Attention", "", "<!-- written by docs/generate.py -->", "", told, ""]
    parts += ["| signal | when | weight |", "|---|---|---|"]
    for name, module, function in table:
        file = REVIEW / f"{module}.py" if module else catalog_file
        tree = ast.parse(file.read_text(encoding="utf-8"))
        said = docstring(tree, function)
        parts.append(f"| `{name}` | {said} | {weights.get(name, unknown)} |")
    lost = "The step has no snapshot: what it did is not known."
    parts.append(f"| `snapshot_failed` | {lost} | {weights['snapshot_failed']} |")
    parts.append(need_section(known))
    return "\n".join(parts) + "\n"


def rules_page() -> str:
    """The page of rules: names, versions and functions from the catalog."""
    catalog = (RULES / "rule_catalog.py").read_text(encoding="utf-8")
    table = re.findall(r'"(\w+)": Rule\((\d+), (\w+)\.(\w+)\),', catalog)
    settings = ast.parse((SHARED / "task_tables.py").read_text(encoding="utf-8"))
    (struct,) = (
        node
        for node in settings.body
        if isinstance(node, ast.ClassDef) and node.name == "RuleSettings"
    )
    keys = rows(struct)
    parts = ["# Rules", "", "<!-- written by docs/generate.py -->", "", RULES_INTRO, ""]
    parts += ["| rule | version | what it masks | keys of `[rules]` |", "|---|---|---|---|"]
    for name, version, module, function in table:
        tree = ast.parse((RULES / f"{module}.py").read_text(encoding="utf-8"))
        said = docstring(tree, function)
        mine = ", ".join(f"`{key}` ({default})" for key, _, default, text in keys if name in text)
        parts.append(f"| `{name}` | {version} | {said} | {mine or '–'} |")
    return "\n".join([*parts, *accuracy_section(), RULES_REST]) + "\n"


def families_page() -> str:
    """The page of model families, as the tests know them."""
    sys.path.insert(0, str(ROOT))
    from tests.support import family_table

    return family_table.page()


def accuracy_section() -> list[str]:
    """How right the rules are on judged cases: measured, not written down."""
    sys.path.insert(0, str(ROOT))
    from tests.support import rule_cases

    every = rule_cases.cases()
    held_out = [one for one in every if one.held_out]
    return [
        RULES_ACCURACY.format(count=len(every)),
        *rule_cases.table(every),
        RULES_HELD_OUT.format(count=len(held_out)),
        *rule_cases.table(held_out),
        RULES_PATTERNS,
        RULES_BEFORE,
    ]


COMMANDS_INTRO = """\
`houston COMMAND --help` says all that a command takes. Everywhere:

- `--home DIR`, `HOUSTON_HOME` or `houston.toml` name the home, `--config FILE` the
  [configuration](configuration.md).
- R is a rollout: its id, or a unique beginning or ending of it; a step of it is `R@STEP`.
- `--json` gives data: one object, or one on each line. The keys that other programs may rely on are
  in [the design](design.md#commands-and-formats), and [Python reads a home](notebook.md) without
  any command.
- `--out` says where something is written, `-n` how many, `-f` that the command goes on as more
  comes, `--as NAME` who speaks where people share a login.
- An error says its cause, its effect and the next command on standard error. A word that is not
  known is answered with those that are like it.

`houston completion bash|zsh|fish` prints what completes commands, flags, values and names
(rollouts, policies, runs, tasks, engines, suites, recipes) in your shell; `houston completion
--help` names the file it belongs into.

## Exit codes

| code | meaning |
|---|---|
{codes}
| 130 | ended by Ctrl-C |

66 is for every kind of thing: a rollout, a step, guidance, a policy, a run, a suite, an engine, a
recipe, a file, a home (`tests/unit/shared/test_not_found.py`). A filter that nothing fits
(`rollout list --task NAME`) is no error, a name that means several rollouts and a word that is none
of those which help lists are wrong usage."""


def commands_page() -> str:
    """The page of commands, by subject, with an example of each."""
    from houston_shared.command_table import SECTIONS
    from houston_shared.errors import EXIT_CODE_MEANINGS

    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODE_MEANINGS.items())
    parts = ["# The command line", "", "<!-- written by docs/generate.py -->", ""]
    parts.append(COMMANDS_INTRO.format(codes=codes))
    for subject, commands in SECTIONS.items():
        parts += [
            "",
            f"## {subject.capitalize()}",
            "",
            "| what it does | for example |",
            "|---|---|",
        ]
        for command in commands:
            line = " ".join(("houston", *command.words, command.example)).strip()
            parts.append(f"| {command.help} | `{line}` |")
    return "\n".join(parts) + "\n"


def docstring(tree: ast.Module, function: str) -> str:
    """What a function says of itself, on one line."""
    (found,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function
    )
    return " ".join((ast.get_docstring(found) or "").split())


def rows(struct: ast.ClassDef) -> list[tuple[str, str, str, str]]:
    """Key, type, default and sentence of each field."""
    found = []
    for field, after in zip(struct.body, [*struct.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign):
            text = after.value.value if is_text(after) else ""
            default = ast.unparse(field.value) if field.value else "required"
            name = ast.unparse(field.target)
            found.append((name, plain(field.annotation), default, " ".join(text.split())))
    return found


def is_text(node: ast.stmt | None) -> bool:
    """Whether a statement is a string that stands alone: the sentence under a field."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


BOUNDED_TYPES = {
    "PositiveInt": "int, ge 1",
    "NonNegativeInt": "int, ge 0",
    "PositiveFloat": "float, gt 0",
    "NonNegativeFloat": "float, ge 0",
    "UnitShare": "float, ge 0, le 1",
    "RewardKind": "one of ['binary', 'score']",
    "AdvantageScale": "one of ['group', 'none']",
    "ReportTo": "one of ['auto', 'none', 'trackio', 'wandb', 'tensorboard'], or a list",
}
"""Names of types that recipes use, as a person writes them."""


def plain(annotation: ast.expr) -> str:
    """A type as a person writes it."""
    text = ast.unparse(annotation)
    if isinstance(annotation, ast.Subscript) and text.startswith("Annotated["):
        inner, meta = annotation.slice.elts  # type: ignore[attr-defined]
        bounds = ", ".join(f"{k.arg} {ast.unparse(k.value)}" for k in meta.keywords)
        return f"{ast.unparse(inner)}, {bounds}"
    text = BOUNDED_TYPES.get(text, text)
    return text.replace("Literal[", "one of [").replace("tuple[str, ...]", "list of str")


def page(source: str, title: str, intro: str, structs: list[tuple[str, str]]) -> str:
    """One page of Markdown."""
    trees = [ast.parse((SHARED / file).read_text(encoding="utf-8")) for file in source.split()]
    classes = {n.name: n for tree in trees for n in tree.body if isinstance(n, ast.ClassDef)}
    parts = [f"# {title}", "", "<!-- written by docs/generate.py -->", "", intro]
    for name, heading in structs:
        parts += ["", f"## {heading}", "", ast.get_docstring(classes[name]) or "", ""]
        parts += ["| key | type | default | meaning |", "|---|---|---|---|"]
        for key, kind, default, text in rows(classes[name]):
            cells = [f"`{key}`", kind, f"`{default}`", text]
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write the pages, or with --check say which are out of date; the exit code."""
    stale = []
    pages = {name: page(*spec) for name, spec in PAGES.items()}
    pages["attention.md"] = signals_page()
    pages["rules.md"] = rules_page()
    pages["families.md"] = families_page()
    pages["command-line.md"] = commands_page()
    pages["actions.md"] = actions_page()
    for name, text in pages.items():
        file = ROOT / "docs" / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                file.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run python docs/generate.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
