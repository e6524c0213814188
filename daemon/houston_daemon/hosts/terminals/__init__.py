"""Terminals of a rollout on this machine: tmux sessions, their shells and their byte logs."""
