"""An aiokafka service: reads orders and writes an invoice for each, once, until SIGTERM.

Needs `pip install aiokafka`. Run: python service.py 127.0.0.1:9092
"""

import asyncio
import signal
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def serve(servers: str, stop: asyncio.Event) -> None:
    """Write invoices in transactions with the offsets of their orders, until `stop` is set."""
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="billing")
    async with consumer, producer:
        while not stop.is_set():
            batches = await consumer.getmany(timeout_ms=200)
            if not batches:
                continue
            async with producer.transaction():
                for partition, orders in batches.items():
                    for order in orders:
                        invoice = b"invoice for " + order.value
                        await producer.send("invoices", invoice, timestamp_ms=order.timestamp)
                    offsets = {partition: orders[-1].offset + 1}
                    await producer.send_offsets_to_transaction(offsets, "billing")


async def main(servers: str) -> None:
    """Serve until SIGTERM or Ctrl-C: what is under way is finished first."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(servers, stop)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
