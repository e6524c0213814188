"""Commands that read a home or send one small message; none of them imports Textual.

Reading works while the daemon is down. Text is for people and may change; `--json` is stable
(DESIGN §9). Modules are imported by `houston_shared.command` only when their command runs.
"""
