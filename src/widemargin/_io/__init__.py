"""Atomic files, progress bars, provenance and optional imports."""
