/* Consume, transform, produce with the Java client (3.x or 4.x): see test_interop_exactly_once_clients.py.
 *
 *     java Transform BOOTSTRAP FROM TO GROUP TRANSACTIONAL_ID
 *
 * Ends when its input ends; with 3 where a new producer is needed.
 */

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transform {
    static volatile boolean ended = false;

    public static void main(String[] arguments) throws Exception {
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() != -1) {
                }
            } catch (java.io.IOException error) {
                // As if it had ended.
            }
            ended = true;
        });
        input.setDaemon(true);
        input.start();

        Properties producing = new Properties();
        producing.put("bootstrap.servers", arguments[0]);
        producing.put("transactional.id", arguments[4]);
        producing.put("transaction.timeout.ms", "10000");
        Properties consuming = new Properties();
        consuming.put("bootstrap.servers", arguments[0]);
        consuming.put("group.id", arguments[3]);
        consuming.put("isolation.level", "read_committed");
        consuming.put("enable.auto.commit", "false");
        consuming.put("auto.offset.reset", "earliest");
        if ("consumer".equals(System.getenv("GROUP_PROTOCOL"))) {
            consuming.put("group.protocol", "consumer");
        } else {
            consuming.put("session.timeout.ms", "6000");
            consuming.put("heartbeat.interval.ms", "500");
        }
        consuming.put("max.poll.records", "50");
        var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
        var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer());
        try {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            System.out.println("started");
            while (!ended) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (var record : records) {
                        producer.send(new ProducerRecord<>(arguments[2], record.partition(), record.key(), record.value()));
                        offsets.put(new TopicPartition(record.topic(), record.partition()),
                                new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                    System.out.println("committed " + records.count());
                } catch (KafkaException error) {
                    System.out.println("aborts: " + error);
                    producer.abortTransaction();
                    // What was polled is polled again.
                    consumer.committed(consumer.assignment()).forEach((partition, offset) -> {
                        if (offset != null) {
                            consumer.seek(partition, offset);
                        } else {
                            consumer.seekToBeginning(List.of(partition));
                        }
                    });
                }
            }
            consumer.close();
            producer.close();
        } catch (KafkaException error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(3);
        }
        Runtime.getRuntime().halt(0);
    }
}
