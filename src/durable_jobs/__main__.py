"""`python -m durable_jobs` is the command `durable-jobs`."""

from durable_jobs.cli.main import main

if __name__ == "__main__":
    main()
