"""The main job, end to end: real records with real times, a broker, Spark, and a report."""
