// KafkaJS, doing what tests/interop asks: node client.js COMMAND BOOTSTRAP '{"..."}'.
// Prints one JSON object. NODE_PATH points at what `make peers` installed.
"use strict";

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require("kafkajs");
const snappy = require("kafkajs-snappy");
const lz4 = require("lz4js");
const xxhash = require("lz4js/xxh32.js");
const zstd = require("@bokuweb/zstd-wasm");

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};
// lz4js says of its frames that their blocks need each other, which Java cannot read; of the single
// block that these tests fill it is not true.
const independent = (frame) => {
  frame[4] |= 0x20;
  frame[6] = (xxhash.hash(0, frame, 4, 2) >> 8) & 0xff;
  return frame;
};

CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => independent(Buffer.from(lz4.compress(encoder.buffer))),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

const [, , command, bootstrap, json] = process.argv;
const asked = JSON.parse(json);
const token = process.env.TOKEN;
const sasl = token && { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: token }) };
const kafka = new Kafka({ brokers: [bootstrap], sasl, logLevel: logLevel.NOTHING, retry: { retries: 3 } });

const text = (data) => (data === null || data === undefined ? null : data.toString());

const refused = (error) => {
  const cause = error.code === undefined && error.cause ? error.cause : error;
  return { error: cause.code ?? 0, message: cause.message, kind: cause.type ?? cause.name };
};

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

async function create() {
  const configEntries = Object.entries(asked.config ?? {}).map(([name, value]) => ({ name, value }));
  const topic = { topic: asked.topic, numPartitions: asked.partitions ?? 1, replicationFactor: 1, configEntries };
  await withAdmin((admin) => admin.createTopics({ topics: [topic], waitForLeaders: true }));
  return {};
}

// One batch; KafkaJS tells the base offset and the append time of the whole of it.
async function produce() {
  const producer = kafka.producer({ idempotent: asked.idempotent === true, maxInFlightRequests: 1 });
  await producer.connect();
  const messages = asked.records.map(([timestamp, key, value, headers]) => ({
    timestamp: String(timestamp),
    key,
    value,
    partition: asked.partition ?? 0,
    headers,
  }));
  try {
    const [told] = await producer.send({
      topic: asked.topic,
      messages,
      acks: asked.acks === "1" ? 1 : -1,
      compression: CODECS[asked.codec ?? "none"],
    });
    const appended = Number(told.logAppendTime);
    return {
      records: asked.records.map(([timestamp], at) => ({
        offset: Number(told.baseOffset) + at,
        timestamp: appended === -1 ? timestamp : appended,
      })),
    };
  } catch (error) {
    return { records: asked.records.map(() => refused(error)) };
  } finally {
    await producer.disconnect();
  }
}

async function consume() {
  const end = await withAdmin(async (admin) => {
    const offsets = await admin.fetchTopicOffsets(asked.topic);
    return Number(offsets.find(({ partition }) => partition === (asked.partition ?? 0)).offset);
  });
  const consumer = kafka.consumer({ groupId: `read-${process.pid}-${Date.now()}` });
  await consumer.connect();
  await consumer.subscribe({ topic: asked.topic, fromBeginning: true });
  const records = [];
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`only ${records.length} records`)), 600_000).unref();
    consumer
      .run({
        autoCommit: false,
        eachBatch: async ({ batch }) => {
          if (batch.partition !== (asked.partition ?? 0)) return;
          for (const message of batch.messages) {
            records.push({
              offset: Number(message.offset),
              timestamp: Number(message.timestamp),
              type: null, // KafkaJS does not tell
              key: text(message.key),
              value: text(message.value),
              headers: Object.fromEntries(Object.entries(message.headers).map(([name, value]) => [name, text(value)])),
            });
          }
          if (Number(batch.lastOffset()) + 1 >= end) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();
  const from = asked.from ?? 0;
  return { records: records.filter(({ offset }) => offset >= from) };
}

// KafkaJS answers the end of the log where no record is at or after the time.
async function lookup() {
  return withAdmin(async (admin) => {
    const [{ high }] = await admin.fetchTopicOffsets(asked.topic);
    const found = [];
    for (const at of asked.times) {
      const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(asked.topic, at);
      found.push(Number(offset) === Number(high) ? null : [Number(offset), null]);
    }
    return { found };
  });
}

async function settings() {
  return withAdmin(async (admin) => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: asked.topic };
    const configEntries = Object.entries(asked.set).map(([name, value]) => ({ name, value }));
    let told = {};
    try {
      await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries }] });
    } catch (error) {
      told = refused(error);
    }
    const { resources } = await admin.describeConfigs({ resources: [resource], includeSynonyms: false });
    const values = {};
    for (const { configName, configValue } of resources[0].configEntries) {
      if (configName in asked.set) values[configName] = configValue;
    }
    return { ...told, values };
  });
}

// What is said of a topic before and after it is given partitions, and after it is deleted.
async function administer() {
  return withAdmin(async (admin) => {
    const partitions = async () => (await admin.fetchTopicMetadata({ topics: [asked.topic] })).topics[0].partitions.length;
    const listed = async () => (await admin.listTopics()).includes(asked.topic);
    const told = { before: await partitions() };
    await admin.createPartitions({ topicPartitions: [{ topic: asked.topic, count: asked.partitions }] });
    told.after = await partitions();
    told.listed = await listed();
    await admin.deleteTopics({ topics: [asked.topic] });
    told.left = await listed();
    return told;
  });
}

// A second member joins while the first reads; all is read, and both have partitions in the end.
async function group() {
  const seen = new Set();
  let records = 0;
  const held = { first: [], second: [] };
  const start = async (name) => {
    const consumer = kafka.consumer({ groupId: asked.group, heartbeatInterval: 500, sessionTimeout: 180_000 });
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      held[name] = (payload.memberAssignment[asked.topic] ?? []).sort();
    });
    await consumer.connect();
    await consumer.subscribe({ topic: asked.topic, fromBeginning: true });
    await consumer.run({
      autoCommitInterval: 100,
      eachMessage: async ({ partition, message }) => {
        records += 1;
        seen.add(`${partition}:${message.offset}`);
      },
    });
    return consumer;
  };
  const until = async (done) => {
    const deadline = Date.now() + 600_000;
    while (!done() && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 50));
  };
  const first = await start("first");
  await until(() => records > 0);
  const second = await start("second");
  await until(() => seen.size >= asked.records && held.second.length > 0 && held.first.length < held.first.length + held.second.length);
  await until(() => held.first.every((partition) => !held.second.includes(partition)));
  const told = { ...held, records, distinct: seen.size };
  await first.disconnect();
  await second.disconnect();
  told.committed = await withAdmin(async (admin) => {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: asked.group, topics: [asked.topic] });
    return Object.fromEntries(partitions.map(({ partition, offset }) => [partition, Number(offset)]));
  });
  return told;
}

async function main() {
  await zstd.init();
  const told = await { create, produce, consume, lookup, settings, group, administer }[command]();
  console.log(JSON.stringify(told));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
