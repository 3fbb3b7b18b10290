// Consume, transform, produce with KafkaJS: see test_interop_exactly_once_clients.py.
//
//     node transform.js BOOTSTRAP FROM TO GROUP TRANSACTIONAL_ID
//
// Ends when its input ends; with 3 where a new producer is needed, which is after any error.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

const BATCH = 50;
const [, , bootstrap, source, target, groupId, transactionalId] = process.argv;
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });

const fail = (error) => {
  console.log(error);
  process.exit(3);
};

async function copy(producer, topic, partition, messages) {
  const transaction = await producer.transaction();
  await transaction.send({
    topic: target,
    messages: messages.map(({ key, value }) => ({ key, value, partition })),
  });
  const offset = String(Number(messages.at(-1).offset) + 1);
  await transaction.sendOffsets({
    consumerGroupId: groupId,
    topics: [{ topic, partitions: [{ partition, offset }] }],
  });
  await transaction.commit();
  console.log(`committed ${messages.length}`);
}

async function main() {
  // Before the consumer asks for offsets: what an earlier life left open is ended here.
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1, transactionTimeout: 10_000 });
  await producer.connect();
  await (await producer.transaction()).abort();
  const consumer = kafka.consumer({ groupId, readUncommitted: false, sessionTimeout: 6000, heartbeatInterval: 500 });
  consumer.on(consumer.events.CRASH, ({ payload }) => fail(payload.error));
  await consumer.connect();
  await consumer.subscribe({ topic: source, fromBeginning: true });
  console.log("started");
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      for (let at = 0; at < batch.messages.length; at += BATCH) {
        const messages = batch.messages.slice(at, at + BATCH);
        await copy(producer, batch.topic, batch.partition, messages).catch(fail);
        resolveOffset(messages.at(-1).offset);
        await heartbeat();
      }
    },
  });
}

process.stdin.resume().on("end", () => process.exit(0));
main().catch(fail);
