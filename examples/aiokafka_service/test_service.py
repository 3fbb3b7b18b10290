"""The service is stopped and started again, and an answer is lost: each order has one invoice.

Needs `pip install 'horolog[arrow]' pytest aiokafka`. Run: pytest examples/aiokafka_service
"""

import subprocess
import sys
import time
from pathlib import Path

from horolog.client import Client, Producer
from horolog.sources import scan

SERVICE = [sys.executable, Path(__file__).with_name("service.py")]


def test_each_order_has_one_invoice(horolog_broker):
    servers = horolog_broker.bootstrap_servers
    horolog_broker.create_topic("orders")
    horolog_broker.create_topic("invoices")
    horolog_broker.lose_answer("EndTxn")
    with Client(servers) as client, Producer(client) as producer:
        for orders in (["tea", "milk"], ["bread"]):
            producer.send("orders", {"value": orders})
            expected = count(client, "orders")
            with subprocess.Popen([*SERVICE, servers]) as service:
                deadline = time.monotonic() + 120
                while count(client, "invoices") < expected and time.monotonic() < deadline:
                    time.sleep(0.1)
                service.terminate()
            assert service.returncode == 0
        invoices = scan(client, "invoices", read_committed=True).read_all()["value"].to_pylist()
    assert invoices == [b"invoice for tea", b"invoice for milk", b"invoice for bread"]


def count(client, topic):
    return scan(client, topic, read_committed=True).read_all().num_rows
