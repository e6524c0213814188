"""Handlers of messages: each does what its message asks for, in the recorder's open transaction."""
