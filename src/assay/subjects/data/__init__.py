"""Data by name: one file a data set, and readers for folders and arrays."""
