"""What a leader checks before it appends."""
