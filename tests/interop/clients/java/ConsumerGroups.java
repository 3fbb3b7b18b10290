/* Members of groups and an admin of the Java client: see test_interop_consumer_protocol.py.
 *
 *     java ConsumerGroups member BOOTSTRAP GROUP SUBSCRIPTION [NAME=VALUE...]
 *     java ConsumerGroups admin BOOTSTRAP
 *
 * A member says what it has and reads, as python/member.py does. A subscription is names
 * of topics, re2:PATTERN for the broker, or java:PATTERN for the client. A line of input seeks: TOPIC
 * PARTITION OFFSET, or is `pause` or `resume`.
 *
 * A line for the admin is a command (see `answer`), and each is answered by a line. Both end with
 * their input.
 */

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RetriableCommitFailedException;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ConsumerGroups {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("member")) {
            member(arguments);
        } else {
            admin(arguments[1]);
        }
    }

    // --- members ------------------------------------------------------------------------

    static final Queue<String> commands = new ConcurrentLinkedQueue<>();
    static volatile boolean ended = false;

    static synchronized void say(String what, TopicPartition at, long offset) {
        System.out.println(System.currentTimeMillis() + " " + what + " " + at.topic() + " " + at.partition() + " " + offset);
    }

    static void member(String[] arguments) {
        Thread input = new Thread(() -> {
            try (var lines = new BufferedReader(new InputStreamReader(System.in))) {
                lines.lines().forEach(commands::add);
            } catch (IOException error) {
                // As if it had ended.
            }
            ended = true;
        });
        input.setDaemon(true);
        input.start();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("group.id", arguments[2]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "20");
        settings.put("metadata.max.age.ms", "1000");
        settings.put("reconnect.backoff.max.ms", "200");
        for (int at = 4; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            subscribe(consumer, arguments[3]);
            while (!ended) {
                for (String line = commands.poll(); line != null; line = commands.poll()) {
                    obey(consumer, line.split(" "));
                }
                var records = consumer.poll(Duration.ofMillis(100));
                for (var record : records) {
                    say("r", new TopicPartition(record.topic(), record.partition()), record.offset());
                }
                if (!records.isEmpty()) {
                    try {
                        consumer.commitSync();
                    } catch (RebalanceInProgressException | CommitFailedException | RetriableCommitFailedException error) {
                        // With the next, or when the partition is given up.
                    }
                }
            }
        }
    }

    static void subscribe(KafkaConsumer<String, String> consumer, String subscription) {
        var listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                partitions.forEach(at -> say("+", at, -1));
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                try {
                    consumer.commitSync();
                } catch (CommitFailedException error) {
                    // Whoever reads next reads again.
                }
                partitions.forEach(at -> say("-", at, -1));
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                partitions.forEach(at -> say("!", at, -1));
            }
        };
        if (subscription.startsWith("re2:")) {
            consumer.subscribe(new SubscriptionPattern(subscription.substring(4)), listener);
        } else if (subscription.startsWith("java:")) {
            consumer.subscribe(Pattern.compile(subscription.substring(5)), listener);
        } else {
            consumer.subscribe(List.of(subscription.split(",")), listener);
        }
    }

    static void obey(KafkaConsumer<String, String> consumer, String[] words) {
        switch (words[0]) {
            case "pause" -> consumer.pause(consumer.assignment());
            case "resume" -> consumer.resume(consumer.paused());
            default -> consumer.seek(new TopicPartition(words[0], Integer.parseInt(words[1])), Long.parseLong(words[2]));
        }
    }

    // --- the admin ----------------------------------------------------------------------

    static void admin(String bootstrap) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.max.ms", "200");
        try (var admin = Admin.create(settings); var lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                try {
                    System.out.println("= " + answer(admin, line.split(" ")));
                } catch (ExecutionException error) {
                    System.out.println("= " + error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage());
                }
            }
        }
    }

    static String answer(Admin admin, String[] words) throws Exception {
        String group = words.length > 1 ? words[1] : null;
        switch (words[0]) {
            case "describe": // GROUP
                return described(admin, group);
            case "list": // state,state|* type,type|*
                var options = new ListGroupsOptions();
                if (!words[1].equals("*")) {
                    options.inGroupStates(Arrays.stream(words[1].split(",")).map(GroupState::parse).collect(Collectors.toSet()));
                }
                if (!words[2].equals("*")) {
                    options.withTypes(Arrays.stream(words[2].split(",")).map(GroupType::parse).collect(Collectors.toSet()));
                }
                return admin.listGroups(options).all().get().stream()
                        .map(it -> it.groupId() + "/" + it.type().orElse(null) + "/" + it.protocol() + "/" + it.groupState().orElse(null))
                        .sorted().collect(Collectors.joining(" "));
            case "delete": // GROUP
                admin.deleteConsumerGroups(List.of(group)).all().get();
                return "deleted";
            case "alter": // GROUP TOPIC PARTITION OFFSET
                admin.alterConsumerGroupOffsets(group, Map.of(at(words), new OffsetAndMetadata(Long.parseLong(words[4])))).all().get();
                return "altered";
            case "forget": // GROUP TOPIC PARTITION
                admin.deleteConsumerGroupOffsets(group, Set.of(at(words))).all().get();
                return "forgotten";
            case "offsets": // GROUP
                return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().entrySet().stream()
                        .map(each -> each.getKey() + "=" + (each.getValue() == null ? null : each.getValue().offset()))
                        .sorted().collect(Collectors.joining(" "));
            case "remove": // GROUP [INSTANCE]
                var whom = words.length > 2
                        ? new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove(words[2])))
                        : new RemoveMembersFromConsumerGroupOptions();
                admin.removeMembersFromConsumerGroup(group, whom).all().get();
                return "removed";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    static TopicPartition at(String[] words) {
        return new TopicPartition(words[2], Integer.parseInt(words[3]));
    }

    static String described(Admin admin, String group) throws Exception {
        var it = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        String members = it.members().stream()
                .sorted(Comparator.comparing(member -> sorted(member.assignment().topicPartitions()).toString()))
                .map(ConsumerGroups::described).collect(Collectors.joining(" "));
        return it.type() + " " + it.groupState() + " epoch " + it.groupEpoch().orElse(null) + " target "
                + it.targetAssignmentEpoch().orElse(null) + " by " + it.partitionAssignor() + ": " + members;
    }

    static String described(MemberDescription member) {
        return "[" + member.groupInstanceId().orElse(null) + " epoch " + member.memberEpoch().orElse(null) + " upgraded "
                + member.upgraded().orElse(null) + " has " + sorted(member.assignment().topicPartitions()) + " target "
                + member.targetAssignment().map(target -> sorted(target.topicPartitions()).toString()).orElse(null) + "]";
    }

    static Set<String> sorted(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).collect(Collectors.toCollection(TreeSet::new));
    }
}
