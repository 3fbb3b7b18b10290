"""Broker of an Apache Kafka (KRaft) cluster; imported only where a node joins one.

controllers   finds the active controller, and asks it: on the event loop, or in a thread
placement     who leads, who is a broker, who coordinates, by the controllers' metadata
relaying      requests that change the cluster, passed on to the active controller
"""
