"""Tests of the documentation: readers with their folders."""

from doc_fixtures import furnished, reader

__all__ = ["furnished", "reader"]
