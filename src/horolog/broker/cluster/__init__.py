"""Broker of an Apache Kafka (KRaft) cluster; imported only where a node joins one.

condition          problems of the broker and its partitions, and their numbers
controllers        finds the active controller, and asks it: on the event loop, or in a thread
directory          checks and locks the log directory, before anything is written
lifecycle          registration, heartbeats and controlled shutdown, in a thread
membership         observer, registration and heartbeats, and why a node has to stop
node               the parts of a broker of a cluster, and the order of start and stop
other_brokers      connections to other brokers
placement          who leads, who is a broker, who coordinates, by the controllers' metadata
producer_ids       producer ids of blocks that the controllers allocate
registration       features that are claimed, and checks that controllers do not make
relaying           requests that change the cluster, passed on to the active controller
remote_admission   asks the coordinators of transactions, which are other brokers
"""
