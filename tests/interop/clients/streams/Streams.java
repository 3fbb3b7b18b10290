/* A Kafka Streams application that copies one topic to another, with an extractor of timestamps.
 *
 *     java Streams BOOTSTRAP FROM TO default|skip|use-partition-time|any RECORDS DIRECTORY
 *
 * Ends when the output has as many records, or the application has failed; prints one JSON object:
 * {"state": ..., "failure": ..., "skipped": ...}.
 */

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.FailOnInvalidTimestamp;
import org.apache.kafka.streams.processor.LogAndSkipOnInvalidTimestamp;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp;

public class Streams {
    /** Gives every record the timestamp that it has. */
    public static class AnyTimestamp implements TimestampExtractor {
        @Override
        public long extract(org.apache.kafka.clients.consumer.ConsumerRecord<Object, Object> record, long partitionTime) {
            return record.timestamp();
        }
    }

    static final Map<String, Class<?>> EXTRACTORS = Map.of(
            "default", FailOnInvalidTimestamp.class,
            "skip", LogAndSkipOnInvalidTimestamp.class,
            "use-partition-time", UsePartitionTimeOnInvalidTimestamp.class,
            "any", AnyTimestamp.class);

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", "streams-" + arguments[2]);
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[5]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("commit.interval.ms", "100");
        settings.put("default.key.serde", Serdes.ByteArray().getClass());
        settings.put("default.value.serde", Serdes.ByteArray().getClass());
        settings.put("default.timestamp.extractor", EXTRACTORS.get(arguments[3]));
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[1]).to(arguments[2]);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long deadline = System.nanoTime() + Duration.ofMinutes(5).toNanos();
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(thrown -> {
            failure.compareAndSet(null, thrown);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        Properties reading = new Properties();
        reading.put("bootstrap.servers", arguments[0]);
        TopicPartition output = new TopicPartition(arguments[2], 0);
        try (var consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            while (failure.get() == null && System.nanoTime() < deadline
                    && consumer.endOffsets(List.of(output)).get(output) < Long.parseLong(arguments[4])) {
                Thread.sleep(50);
            }
        }
        String state = failure.get() == null ? "running" : "failed";
        double skipped = streams.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals("dropped-records-total"))
                .mapToDouble(metric -> (Double) metric.metricValue()).sum();
        streams.close(Duration.ofSeconds(30));
        Throwable cause = failure.get();
        while (cause != null && cause.getCause() != null) {
            cause = cause.getCause();
        }
        String said = cause == null ? "" : (cause.getClass().getSimpleName() + ": " + cause.getMessage());
        System.out.printf("{\"state\": \"%s\", \"skipped\": %d, \"failure\": \"%s\"}%n", state, (long) skipped,
                said.replaceAll("[^A-Za-z0-9 .:=_-]", " "));
        Runtime.getRuntime().halt(0);
    }
}
