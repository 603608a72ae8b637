"""What `durable-jobs check` looks at, one file a subject."""
