"""Entry point of the command `durable-jobs`."""


def main() -> None:
    """Run the command."""
