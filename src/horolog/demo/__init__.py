"""Demo of the main job, end to end: real records with real times, a broker, Spark, a report.

run              from start to end
broker_process   the broker, a child process
git_history, clickstream   the records: a repository's commits, and a generated stream
producing        the records, sent by librdkafka
questions        what is asked of the log with Spark
findings         what that found; `report` makes a page of it
"""
