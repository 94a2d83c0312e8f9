"""What `python -m arcomm` can do."""
