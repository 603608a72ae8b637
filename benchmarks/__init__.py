"""Speed beside the other queues that live in Postgres, measured in one run: `make bench`."""
