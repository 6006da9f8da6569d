"""Waiting for a job that somebody else has started."""
