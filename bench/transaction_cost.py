"""What does a transaction cost the broker itself, and where? CPU microseconds, no sockets.

Connections as in `request_cost`, each of a transactional id of its own, go through their
transactions side by side: add a partition, produce one record to it, commit (`--flow 2`: produce,
commit). The cost includes what a commit leaves to do after its answer: markers, and the record of
the end. CPU time says the same on a busy machine, nearly. `--profile` prints what takes it.
"""

import argparse
import asyncio
from collections.abc import Sequence

from bench import raw
from bench.clients import payloads
from bench.request_cost import Client, print_cost, served

from horolog.broker.service import Service
from horolog.clock import SystemClock
from horolog.record.builder import LogRecord, build_batch

TOPIC, PARTITIONS = "transactions", 4


class Producer:
    """A transactional id on a connection, as librdkafka (flow 1) or Java (flow 2) uses it."""

    def __init__(self, service: Service, number: int, records: int, size: int, flow: int) -> None:
        self.client = Client(service)
        self.transactional_id = f"cost-{number}"
        self.producer_id, self.epoch, self.sequence = -1, -1, 0
        self._partition = number % PARTITIONS
        self._flow = flow
        values, now_ms = payloads(size), SystemClock().now_ms()
        self._records = [LogRecord(now_ms, None, values[at % len(values)]) for at in range(records)]

    async def begin(self) -> None:
        """Have a producer id."""
        self.client.send(raw.INIT_PRODUCER_ID, raw.init_producer_id_request(self.transactional_id))
        self.producer_id, self.epoch = raw.initialised(await self.client.answer())

    def add(self) -> None:
        """Send AddPartitionsToTxn."""
        body = raw.add_partitions_request(
            self.transactional_id, self.producer_id, self.epoch, TOPIC, self._partition
        )
        self.client.send(raw.ADD_PARTITIONS_TO_TXN, body)

    def produce(self) -> None:
        """Send the records."""
        batch = build_batch(
            self._records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        body = raw.transactional_produce_request(
            self.transactional_id, TOPIC, batch, partition=self._partition
        )
        self.client.send(raw.TRANSACTIONAL_PRODUCE[self._flow], body)

    def end(self) -> None:
        """Send EndTxn."""
        request = raw.end_request_v5 if self._flow == 2 else raw.end_request
        body = request(self.transactional_id, self.producer_id, self.epoch)
        self.client.send(raw.END_TXN[self._flow], body)

    async def added(self) -> bool:
        """Whether the partition is added; else the former transaction is still being ended."""
        return raw.is_added(await self.client.answer())

    async def has_produced(self) -> bool:
        """Whether they are appended; else, in the second flow, as `added`."""
        try:
            raw.check_transactional_produced(await self.client.answer())
        except raw.Refused as error:
            if error.code != raw.CONCURRENT_TRANSACTIONS:
                raise
            return False
        self.sequence += len(self._records)
        return True

    async def ended(self) -> None:
        """Check the answer; in the second flow it has the producer of the next transaction."""
        answer = await self.client.answer()
        if self._flow == 2:
            self.producer_id, self.epoch = raw.ended_v5(answer)
            self.sequence = 0
        else:
            raw.check_ended(answer)


async def _commit(producers: Sequence[Producer], count: int, flow: int) -> None:
    """So many transactions of each; requests of all are under way at a time."""
    for _ in range(count):
        left = producers if flow == 1 else []
        while left:
            for each in left:
                each.add()
            left = [each for each in left if not await each.added()]
        left = producers
        while left:
            for each in left:
                each.produce()
            left = [each for each in left if not await each.has_produced()]
        for each in producers:
            each.end()
        for each in producers:
            await each.ended()


async def measure(asked: argparse.Namespace) -> None:
    """Print the median of the runs."""
    async with served(**{"num.partitions": str(PARTITIONS)}) as service:
        await service.broker.controller.ensure_topic(TOPIC)
        producers = [
            Producer(service, number, asked.records, asked.size, asked.flow)
            for number in range(asked.producers)
        ]
        for each in producers:
            await each.begin()
        count = max(1, asked.transactions // len(producers))

        async def work() -> None:
            await _commit(producers, count, asked.flow)
            await service.broker.transactions.settle()

        await _commit(producers, count // 3, asked.flow)
        await print_cost("transaction", count * len(producers), work, asked)
        for each in producers:
            each.client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flow", type=int, choices=(1, 2), default=1, help="of KIP-890")
    parser.add_argument("--producers", type=int, default=8)
    parser.add_argument("--transactions", type=int, default=2_000)
    parser.add_argument("--records", type=int, default=1)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--size", type=int, default=100, help="bytes of a record")
    parser.add_argument("--profile", action="store_true")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
