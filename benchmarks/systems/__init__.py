"""One file for each system that is measured."""
