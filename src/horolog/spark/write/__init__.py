"""Writers of Spark's rows to brokers.

options          of a write; `producer_settings` those of Kafka's producer
rows             columns and rows as a producer takes them
sink             the writers that Spark calls, on the driver
task             what a task does; `transactions` where it writes exactly once to Apache Kafka
rejected_times   what becomes of rows whose times a broker refuses
"""
