"""What keeps a home whole over years: verify, backup, repair, archive, erase, and freeing hosts."""
