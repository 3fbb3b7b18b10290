"""A `.log` file, walked batch by batch, searched for whole ones, and sliced for a response.

reader     the only place that walks a `.log`, of all formats
whole      whole batches after damage
log_file   the file itself, and where it ends
slices     a part of a file that a response sends
"""
