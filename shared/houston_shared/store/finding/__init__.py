"""Search: what is asked, where it is looked for, and the process that looks for a console."""
