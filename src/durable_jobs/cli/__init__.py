"""The command `durable-jobs`."""
