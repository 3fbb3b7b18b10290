// The Java client, doing what tests/interop asks: a line of JSON in, {"what", "bootstrap", "asked"}, a line of JSON out.
// One process answers all: a JVM takes longer to start than to answer.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int PATIENCE_MS = 600_000; // on a busy machine; only what hangs ever meets it
    static final Map<String, KafkaProducer<byte[], byte[]>> held = new HashMap<>();
    static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            bootstrap = question.get("bootstrap").asText();
            ObjectNode told = JSON.createObjectNode();
            try {
                answer(question.get("what").asText(), question.get("asked"), told);
            } catch (Throwable failed) {
                failed.printStackTrace();
                told.put("failed", failed.toString());
            }
            System.out.println(JSON.writeValueAsString(told));
        }
    }

    static void answer(String what, JsonNode asked, ObjectNode told) throws Exception {
        switch (what) {
            case "create" -> create(asked);
            case "produce" -> produce(asked, told);
            case "consume" -> consume(asked, told);
            case "lookup" -> lookup(asked, told);
            case "largest" -> largest(asked, told);
            case "settings" -> settings(asked, told);
            case "group" -> group(asked, told);
            case "administer" -> administer(asked, told);
            case "transact" -> transact(asked, told);
            case "succeed" -> succeed(asked, told);
            default -> throw new IllegalArgumentException(what);
        }
    }

    static Properties common() {
        Properties common = new Properties();
        common.put("bootstrap.servers", bootstrap);
        common.put("request.timeout.ms", PATIENCE_MS / 3);
        common.put("delivery.timeout.ms", PATIENCE_MS);
        common.put("default.api.timeout.ms", PATIENCE_MS);
        return common;
    }

    static void create(JsonNode asked) throws Exception {
        Map<String, String> config = new HashMap<>();
        asked.path("config").fields().forEachRemaining(one -> config.put(one.getKey(), one.getValue().asText()));
        NewTopic topic = new NewTopic(asked.get("topic").asText(), asked.path("partitions").asInt(1), (short) 1);
        try (Admin admin = Admin.create(common())) {
            admin.createTopics(List.of(topic.configs(config))).all().get();
        }
    }

    static void produce(JsonNode asked, ObjectNode told) throws Exception {
        Properties settings = common();
        settings.put("compression.type", asked.path("codec").asText("none"));
        settings.put("linger.ms", "200");
        settings.put("acks", asked.path("acks").asText("all")); // all: idempotent by default
        ArrayNode rows = told.putArray("records");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : asked.get("records")) {
                var headers = new RecordHeaders();
                record.path(3).fields().forEachRemaining(one -> headers.add(one.getKey(), bytes(one.getValue())));
                sent.add(producer.send(new ProducerRecord<>(asked.get("topic").asText(),
                        asked.path("partition").asInt(0), record.get(0).asLong(), bytes(record.get(1)), bytes(record.get(2)), headers)));
            }
            for (Future<RecordMetadata> one : sent) {
                ObjectNode row = rows.addObject();
                try {
                    RecordMetadata metadata = one.get();
                    row.put("offset", metadata.offset()).put("timestamp", metadata.timestamp());
                } catch (ExecutionException failed) {
                    refused(row, failed.getCause());
                }
            }
        }
    }

    static void consume(JsonNode asked, ObjectNode told) {
        TopicPartition partition = new TopicPartition(asked.get("topic").asText(), asked.path("partition").asInt(0));
        ArrayNode rows = told.putArray("records");
        Properties settings = common();
        settings.put("isolation.level", asked.path("isolation").asText("read_uncommitted"));
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            long from = asked.has("at") // else the consumer is not told of the epoch that it reads in
                    ? consumer.offsetsForTimes(Map.of(partition, asked.get("at").asLong())).get(partition).offset()
                    : asked.path("from").asLong(0);
            consumer.seek(partition, from);
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000L;
            while (consumer.position(partition) < end && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(5))) {
                    ObjectNode row = rows.addObject().put("offset", record.offset()).put("timestamp", record.timestamp())
                            .put("type", record.timestampType().toString())
                            .put("key", text(record.key())).put("value", text(record.value()));
                    ObjectNode headers = row.putObject("headers");
                    record.headers().forEach(header -> headers.put(header.key(), text(header.value())));
                }
            }
        }
    }

    /** One transaction after the other, each committed, aborted, or left open by a producer that is never closed. */
    static void transact(JsonNode asked, ObjectNode told) throws Exception {
        Properties settings = common();
        settings.put("transactional.id", asked.get("id").asText());
        settings.put("linger.ms", "200");
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        ArrayNode rows = told.putArray("records");
        for (JsonNode transaction : asked.get("transactions")) {
            producer.beginTransaction();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : transaction.get("records")) {
                sent.add(producer.send(new ProducerRecord<>(asked.get("topic").asText(), asked.path("partition").asInt(0),
                        record.get(0).asLong(), bytes(record.get(1)), bytes(record.get(2)))));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                rows.addObject().put("offset", one.get().offset()).put("end", transaction.get("end").asText());
            }
            switch (transaction.get("end").asText()) {
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                case "hold" -> {
                    held.put(asked.get("id").asText(), producer);
                    return;
                }
                default -> {
                    System.out.println(JSON.writeValueAsString(told.put("leaves", true)));
                    System.out.flush();
                    Runtime.getRuntime().halt(0); // as a kill would end it
                }
            }
        }
        producer.close();
    }

    /** A producer that holds a transaction open goes on with it, and then another one of its id. */
    static void succeed(JsonNode asked, ObjectNode told) throws Exception {
        var former = held.remove(asked.get("id").asText());
        try {
            former.send(new ProducerRecord<>(asked.get("topic").asText(), 0, null, bytes(asked.get("late")))).get();
            former.commitTransaction();
        } catch (ExecutionException failed) {
            refused(told, failed.getCause());
        } catch (RuntimeException failed) {
            refused(told, failed);
        }
        former.close(Duration.ZERO);
        transact(asked, told);
    }

    static void lookup(JsonNode asked, ObjectNode told) {
        TopicPartition partition = new TopicPartition(asked.get("topic").asText(), 0);
        ArrayNode rows = told.putArray("found");
        try (var consumer = new KafkaConsumer<>(common(), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (JsonNode at : asked.get("times")) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, at.asLong())).get(partition);
                if (found == null) {
                    rows.addNull();
                } else {
                    rows.addArray().add(found.offset()).add(found.timestamp());
                }
            }
        }
    }

    static void largest(JsonNode asked, ObjectNode told) throws Exception {
        TopicPartition partition = new TopicPartition(asked.get("topic").asText(), 0);
        try (Admin admin = Admin.create(common())) {
            ListOffsetsResultInfo found =
                    admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get();
            told.put("offset", found.offset()).put("timestamp", found.timestamp());
        }
    }

    static void settings(JsonNode asked, ObjectNode told) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, asked.get("topic").asText());
        try (Admin admin = Admin.create(common())) {
            List<AlterConfigOp> changes = new ArrayList<>();
            asked.get("set").fields().forEachRemaining(one -> changes.add(new AlterConfigOp(
                    new ConfigEntry(one.getKey(), one.getValue().asText()), AlterConfigOp.OpType.SET)));
            try {
                admin.incrementalAlterConfigs(Map.of(topic, changes)).all().get();
            } catch (ExecutionException failed) {
                refused(told, failed.getCause());
            }
            ObjectNode values = told.putObject("values");
            for (ConfigEntry entry : admin.describeConfigs(List.of(topic)).all().get().get(topic).entries()) {
                if (asked.get("set").has(entry.name())) {
                    values.put(entry.name(), entry.value());
                }
            }
        }
    }

    /** What is said of a topic before and after it is given partitions, and after it is deleted. */
    static void administer(JsonNode asked, ObjectNode told) throws Exception {
        String topic = asked.get("topic").asText();
        try (Admin admin = Admin.create(common())) {
            told.put("before", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(asked.get("partitions").asInt()))).all().get();
            told.put("after", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            told.put("listed", admin.listTopics().names().get().contains(topic));
            admin.deleteTopics(List.of(topic)).all().get();
            told.put("left", admin.listTopics().names().get().contains(topic));
        }
    }

    /** A second member joins while the first reads; all is read once, and both had partitions. */
    static void group(JsonNode asked, ObjectNode told) throws Exception {
        String topic = asked.get("topic").asText();
        int wanted = asked.get("records").asInt();
        List<String> seen = new ArrayList<>();
        Map<String, List<Integer>> held = new TreeMap<>();
        Properties settings = common();
        settings.put("group.id", asked.get("group").asText());
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "10");
        settings.put("session.timeout.ms", "180000");
        settings.put("heartbeat.interval.ms", "500");
        try (var first = member(settings, topic, "first", held); var second = member(settings, topic, "second", held)) {
            long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000L;
            boolean both = false;
            first.poll(Duration.ofMillis(500)).forEach(record -> seen.add(record.partition() + ":" + record.offset()));
            while ((seen.size() < wanted || !both) && System.nanoTime() < deadline) {
                for (var consumer : List.of(first, second)) {
                    consumer.poll(Duration.ofMillis(200)).forEach(record -> seen.add(record.partition() + ":" + record.offset()));
                    consumer.commitSync();
                }
                both = !first.assignment().isEmpty() && !second.assignment().isEmpty();
            }
            told.set("first", JSON.valueToTree(first.assignment().stream().map(TopicPartition::partition).sorted().toList()));
            told.set("second", JSON.valueToTree(second.assignment().stream().map(TopicPartition::partition).sorted().toList()));
        }
        told.put("records", seen.size()).put("distinct", seen.stream().distinct().count());
        try (Admin admin = Admin.create(common())) {
            ObjectNode committed = told.putObject("committed");
            admin.listConsumerGroupOffsets(asked.get("group").asText()).partitionsToOffsetAndMetadata().get()
                    .forEach((partition, offset) -> committed.put(String.valueOf(partition.partition()), offset.offset()));
        }
    }

    static KafkaConsumer<byte[], byte[]> member(Properties settings, String topic, String name, Map<String, List<Integer>> held) {
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    static void refused(ObjectNode row, Throwable cause) {
        row.put("error", (int) Errors.forException(cause).code()).put("message", cause.getMessage())
                .put("kind", cause.getClass().getSimpleName());
    }

    static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : node.asText().getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] data) {
        return data == null ? null : new String(data, StandardCharsets.UTF_8);
    }
}
