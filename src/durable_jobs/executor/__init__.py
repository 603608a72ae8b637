"""Executes jobs: one shift claims, runs, writes outcomes, and leaves when it is relieved."""
