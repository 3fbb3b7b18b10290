"""The indexes of a segment: their files, how they are built, and whether they can be trusted."""
