"""The operator, and its job from the submit to the end."""
