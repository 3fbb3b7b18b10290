// Prints every setting that an Apache Kafka knows, as tests/config compares it with ours. One line each:
//   scope | name | type | default | what is valid | how it may change | internal
//
//   make peers
//   java -cp '.peers/kafka-4/*' tools/KafkaSettings.java > tests/config/kafka_4.4.0_settings.txt

import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.utils.internals.AppInfoParser;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public class KafkaSettings {
    public static void main(String[] args) throws Exception {
        System.out.println("# Apache Kafka " + AppInfoParser.getVersion() + ", printed by tools/KafkaSettings.java");
        print("topic", LogConfig.configDefCopy(), Map.of());
        ConfigDef broker = (ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null);
        print("broker", broker, DynamicBrokerConfig.dynamicConfigUpdateModes());
    }

    private static void print(String scope, ConfigDef settings, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(settings.configKeys()).values()) {
            String fallback = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
            System.out.println(String.join(" | ",
                scope,
                key.name,
                key.type.toString().toLowerCase(),
                fallback == null ? "" : fallback,
                key.validator == null || key.validator.toString() == null ? "" : key.validator.toString(),
                scope.equals("topic") ? "" : modes.getOrDefault(key.name, "read-only"),
                key.internalConfig ? "internal" : ""));
        }
    }
}
