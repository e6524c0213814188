"""The text index beside the database: a process of its own that reads what was committed."""
