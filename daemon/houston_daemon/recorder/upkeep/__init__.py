"""What keeps a home whole over years: backups, repair, upgrade, archives, erased bodies."""
