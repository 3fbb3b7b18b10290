/* A Kafka Streams application that keeps state: how often each word has come.
 *
 *     java Counts BOOTSTRAP FROM TO GUARANTEE DIRECTORY
 *
 * The words are values of one topic; they are made keys (a repartition topic), counted in RocksDB (a
 * changelog topic), and each new count is sent to another topic as "WORD COUNT". Says on its output, a
 * line each, "state NAME", "restored N records" and "failed CLASS: MESSAGE". Ends when its input ends.
 */

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.Stores;

public class Counts {
    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", "counts-" + arguments[2]);
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("processing.guarantee", arguments[3]);
        settings.put("state.dir", arguments[4]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("commit.interval.ms", "100");
        settings.put("num.stream.threads", "2");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("topic.segment.bytes", "1048576");
        settings.put("topic.min.cleanable.dirty.ratio", "0.01");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
                .selectKey((key, word) -> word)
                .groupByKey(Grouped.with("by-word", Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.persistentKeyValueStore("counts"))
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
                .toStream()
                .mapValues((word, count) -> word + " " + count)
                .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(thrown -> {
            Throwable cause = thrown;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            say("failed " + cause);
            thrown.printStackTrace();
            ended.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> say("state " + now));
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition partition, String store, long from, long to) {
            }

            @Override
            public void onBatchRestored(TopicPartition partition, String store, long to, long records) {
            }

            @Override
            public void onRestoreEnd(TopicPartition partition, String store, long records) {
                say("restored " + records + " records");
            }
        });
        streams.start();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() != -1) {
                }
            } catch (java.io.IOException error) {
                // As if it had ended.
            }
            ended.countDown();
        });
        input.setDaemon(true);
        input.start();
        ended.await();
        say("closed " + streams.close(Duration.ofSeconds(60)));
        Runtime.getRuntime().halt(0);
    }
}
