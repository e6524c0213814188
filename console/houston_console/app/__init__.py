"""The annotators' screen: a reader of the database, and a writer of small control messages."""
