"""Broker of an Apache Kafka (KRaft) cluster; imported only where a node joins one.

controllers   finds the active controller, and asks it: on the event loop, or in a thread
"""
