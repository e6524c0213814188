"""What the console and the daemon share: records, messages, store, configuration, safe text."""
