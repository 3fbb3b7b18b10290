"""Broker of an Apache Kafka (KRaft) cluster; imported only where a node joins one.

assigning          reports the directories of replicas to the controllers
condition          problems of the broker and its partitions, and their numbers
controllers        finds the active controller, and asks it: on the event loop, or in a thread
directory          checks and locks the log directory, before anything is written
following          fetches the partitions that other brokers lead
internal_topics    keeps Kafka's internal topics on Kafka's brokers
leading            partitions that this broker leads for other replicas, and AlterPartition
lifecycle          registration, heartbeats and controlled shutdown, in a thread
membership         observer, registration and heartbeats, and why a node has to stop
node               the parts of a broker of a cluster, and the order of start and stop
obeyed             applies the image to topics, settings, rights, users and quotas
observer           fetches the controllers' metadata log, in a thread
other_brokers      connections to other brokers
own_rights         the rights that this broker needs at others
placement          who leads, who is a broker, who coordinates, by the controllers' metadata
producer_ids       producer ids of blocks that the controllers allocate
registration       features that are claimed, and checks that controllers do not make
relaying           requests that change the cluster, passed on to the active controller
remote_admission   asks the coordinators of transactions, which are other brokers
replica_leader     requests of a replica to one leader
roles              carries out the role of each partition, in order
stale_settings     clears settings of deleted topics
view               the image on the event loop
waking             notices that the whole process stood still
"""
