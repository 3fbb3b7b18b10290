"""The broker: requests to answers.

`service.serve` runs a broker in the foreground; `service.Service` is one to start and stop.

    handlers     requests to answers, by what they are about
    control      horolog's own questions and actions (docs/wire.md)
    metrics      numbers for Prometheus (docs/metrics.md)
    shadow       another cluster followed, and led in its place (docs/following.md)
    following    partitions fetched from the broker that leads them, and appended
    scheduling   what runs on the event loop and what in threads, in which order

    opening      the log directory and the metadata store, reconciled; before there is a broker
    broker       its parts, built in order; a part gets those before it, never the broker
    placement    who leads each topic: this broker, or a cluster that it follows
    partition    one log and its writes; reads and lookups go to `Partition.log`
    dispatch     from a frame to its handler and back; `authorisation` says who may
    background_tasks   retention, flushing, checkpoints, index checks
    health       what is wrong with a broker

A broker is never half open. One event loop serves all connections; everything that may wait for
the disk runs in a small pool, in order per partition. Kernels load in the background once it is
ready (`kernels`); until then they run as plain Python.
"""
