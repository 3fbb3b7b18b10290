// Answers what Apache Kafka's group coordinator decides, a line of JSON for each line of JSON:
//   {"assignor": NAME, "homogeneous": B, "counts": {ID: N}, "members": [{"id", "instance", "topics", "previous"}]}
//       the partitions of each member, {MEMBER: {ID: [N]}}
//   {"topic": NAME, "id": ID, "racks": [[RACK] for each partition]}    the hash of the topic
//   {"hashes": {NAME: N}}                                              the hash of a group's topics
//   {"pattern": P, "names": [NAME]}                                    those that match; null if it is none
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue.TopicPartition;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class GroupDecisions {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine())
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
    }

    private static Object answer(JsonNode asked) throws Exception {
        if (asked.has("assignor"))
            return assigned(asked);
        if (asked.has("topic"))
            return Utils.computeTopicHash(asked.get("topic").asText(), image(asked));
        if (asked.has("hashes")) {
            Map<String, Long> hashes = new HashMap<>();
            asked.get("hashes").properties().forEach(it -> hashes.put(it.getKey(), it.getValue().asLong()));
            return Utils.computeGroupHash(hashes);
        }
        return matching(asked);
    }

    private static Object assigned(JsonNode asked) {
        Map<Uuid, Integer> counts = new HashMap<>();
        asked.get("counts").properties().forEach(it -> counts.put(Uuid.fromString(it.getKey()), it.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (JsonNode member : asked.get("members")) {
            String id = member.get("id").asText();
            Set<Uuid> topics = new LinkedHashSet<>();
            member.get("topics").forEach(it -> topics.add(Uuid.fromString(it.asText())));
            List<TopicPartition> previous = new ArrayList<>();
            member.get("previous").properties().forEach(it -> {
                Uuid topic = Uuid.fromString(it.getKey());
                List<Integer> partitions = new ArrayList<>();
                it.getValue().forEach(partition -> partitions.add(partition.asInt()));
                partitions.forEach(partition -> owners.computeIfAbsent(topic, __ -> new HashMap<>()).put(partition, id));
                previous.add(new TopicPartition().setTopicId(topic).setPartitions(partitions));
            });
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                Optional.ofNullable(member.get("instance").textValue()),
                topics,
                Assignment.fromRecord(new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(previous))));
        }
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        SubscriptionType type = asked.get("homogeneous").asBoolean() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ConsumerGroupPartitionAssignor assignor =
            asked.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<String, Map<String, Set<Integer>>> assigned = new TreeMap<>();
        members.keySet().forEach(it -> assigned.put(it, new TreeMap<>()));
        assignor.assign(new GroupSpecImpl(members, type, owners), describer).members().forEach((member, its) ->
            its.partitions().forEach((topic, partitions) -> {
                if (!partitions.isEmpty())
                    assigned.get(member).put(topic.toString(), new TreeSet<>(partitions));
            }));
        return assigned;
    }

    /** Metadata that have one topic. */
    private static CoordinatorMetadataImage image(JsonNode asked) {
        CoordinatorMetadataImage.TopicMetadata topic = new CoordinatorMetadataImage.TopicMetadata() {
            @Override
            public String name() {
                return asked.get("topic").asText();
            }

            @Override
            public Uuid id() {
                return Uuid.fromString(asked.get("id").asText());
            }

            @Override
            public int partitionCount() {
                return asked.get("racks").size();
            }

            @Override
            public List<String> partitionRacks(int partition) {
                List<String> racks = new ArrayList<>();
                asked.get("racks").get(partition).forEach(it -> racks.add(it.asText()));
                return racks;
            }
        };
        return (CoordinatorMetadataImage) Proxy.newProxyInstance(
            GroupDecisions.class.getClassLoader(),
            new Class<?>[] {CoordinatorMetadataImage.class},
            (proxy, method, arguments) -> Optional.of(topic));
    }

    private static Object matching(JsonNode asked) {
        Pattern pattern;
        try {
            pattern = Pattern.compile(asked.get("pattern").asText());
        } catch (PatternSyntaxException refusal) {
            return null;
        }
        List<String> matching = new ArrayList<>();
        for (JsonNode name : asked.get("names"))
            if (pattern.matcher(name.asText()).matches())
                matching.add(name.asText());
        return matching;
    }
}
