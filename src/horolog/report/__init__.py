"""Explanations of logs for people, made from answers of brokers and from files.

retention   what retention does about partitions, and what it would do in an Apache Kafka
lookup      the result of a lookup by time
files       checks and rewrites of files, in lines
topics      topics for the page of `horolog report`, one HTML file to be mailed
picture     append time across, create time up: how many records are where
page        the page, without a network (`page.html` is its template)
"""
