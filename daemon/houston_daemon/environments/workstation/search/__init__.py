"""The search family of the workstation: the web, or the corpus that stands for it."""
