"""The endpoints, a router for each subject."""
