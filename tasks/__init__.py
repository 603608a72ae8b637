"""What flows are made of: thin wrappers around one method of the store, or one probe."""
