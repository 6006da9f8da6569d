"""Azkaban's job type: its program, its installer, its sweep."""
