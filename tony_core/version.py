"""The one place that says which version this is; the build reads it without importing anything."""

__version__ = "0.1.0"
