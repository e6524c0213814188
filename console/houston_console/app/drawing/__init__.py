"""How lines are drawn: spans, colours, frames, and the one widget that shows lines."""
