"""Handlers of messages: what each asks for, done inside the recorder's open transaction."""
