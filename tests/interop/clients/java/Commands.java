/* A producer, a consumer and an admin of one Java client, which live as long as standard input:
 * see test_interop_newest_java.py.
 *
 *     java Commands BOOTSTRAP GROUP TRANSACTIONAL_ID
 *
 * A line is a command, and each is answered by a line:
 *     send TOPIC VALUE      by a producer without transactions
 *     copy FROM TO          what is in a topic, in one transaction with the group's offsets; before
 *                           it is committed the group, which has a member, is to be deleted
 *     delete GROUP
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Commands {
    public static void main(String[] arguments) throws Exception {
        Properties common = new Properties();
        common.put("bootstrap.servers", arguments[0]);
        common.put("reconnect.backoff.max.ms", "200");
        Properties inTransactions = new Properties();
        inTransactions.putAll(common);
        inTransactions.put("transactional.id", arguments[2]);
        Properties consuming = new Properties();
        consuming.putAll(common);
        consuming.put("group.id", arguments[1]);
        consuming.put("enable.auto.commit", "false");
        consuming.put("auto.offset.reset", "earliest");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        try (var producer = new KafkaProducer<>(common, new StringSerializer(), new StringSerializer())) {
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "send" -> {
                        var sent = producer.send(new ProducerRecord<>(words[1], words[2])).get();
                        System.out.println("sent " + words[2] + " at " + sent.offset());
                    }
                    case "copy" -> {
                        try (var copies = new KafkaProducer<>(inTransactions, new StringSerializer(), new StringSerializer());
                                var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
                            copies.initTransactions();
                            consumer.subscribe(List.of(words[1]));
                            ConsumerRecords<String, String> records = ConsumerRecords.empty();
                            while (records.isEmpty()) {
                                records = consumer.poll(Duration.ofMillis(100));
                            }
                            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                            copies.beginTransaction();
                            for (var record : records) {
                                copies.send(new ProducerRecord<>(words[2], record.value()));
                                offsets.put(new TopicPartition(record.topic(), record.partition()),
                                        new OffsetAndMetadata(record.offset() + 1));
                            }
                            copies.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                            System.out.println(deleted(common, arguments[1]));
                            copies.commitTransaction();
                            System.out.println("copied " + records.count());
                        }
                    }
                    default -> System.out.println(deleted(common, words[1]));
                }
            }
        }
    }

    private static String deleted(Properties common, String group) throws InterruptedException {
        try (var admin = Admin.create(common)) {
            admin.deleteConsumerGroups(List.of(group)).all().get();
            return "deleted " + group;
        } catch (ExecutionException error) {
            return "not deleted " + error.getCause();
        }
    }
}
