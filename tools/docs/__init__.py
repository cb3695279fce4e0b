"""The reference of the documentation site, made from the code: ``python -m tools.docs`` writes docs/reference/."""
