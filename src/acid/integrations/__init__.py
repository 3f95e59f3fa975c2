"""Bridges to other projects. Nothing in the library imports from here."""
