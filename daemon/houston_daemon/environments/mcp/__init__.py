"""Servers of tools (Model Context Protocol) as what an agent can do, through the official SDK."""
