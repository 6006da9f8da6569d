"""The messages of Hadoop that we speak, from our own minimal definitions."""
