"""Where targets come from: our zoo, a user's Python file, or a live module."""
