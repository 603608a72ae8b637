"""The layers, the names of files, and what is packed."""
