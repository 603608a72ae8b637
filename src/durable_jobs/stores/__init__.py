"""Where jobs are kept: the protocols, Postgres, and memory."""
