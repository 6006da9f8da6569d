"""TonY for Azkaban. The package is reserved; it holds no job type yet."""
