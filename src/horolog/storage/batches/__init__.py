"""A `.log` file, walked batch by batch, searched for whole ones, and sliced for a response."""
