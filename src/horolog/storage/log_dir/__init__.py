"""A log directory as a whole: all its logs, opened, checkpointed and closed."""
