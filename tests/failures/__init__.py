"""Everything that can fail, on real processes: docs/failures.md has the table of all of it."""
