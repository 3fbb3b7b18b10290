"""What a broker has and can do; requests to answers, one module per API in `handlers`.

`service.serve` runs a broker in the foreground; `service.Service` is one to start and stop.
"""
