/* Flink copies a topic to another one, exactly once: see test_interop_flink.py.
 *
 *     java Copy BOOTSTRAP FROM TO PARTITIONS CHECKPOINTS INCREMENTING|POOLING
 *
 * A cluster within this JVM: a source that keeps its offsets in checkpoints, a shuffle, and the sink
 * that commits its transactions when a checkpoint is complete. A number N goes to partition
 * N % PARTITIONS, in the order of the partition that it comes from. Started again, it continues from the
 * newest checkpoint in the directory. Says "restored DIRECTORY" if there is one, and "started". Ends
 * when its input ends; with 3 if the job fails.
 */

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaPartitioner;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Copy {
    /** The newest checkpoint that is complete: a file `_metadata` is written last. */
    static Optional<Path> newest(Path directory) throws Exception {
        if (!Files.isDirectory(directory)) {
            return Optional.empty();
        }
        try (Stream<Path> files = Files.walk(directory)) {
            return files.filter(path -> path.endsWith("_metadata"))
                    .max(Comparator.comparing(path -> path.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() != -1) {
                }
            } catch (java.io.IOException error) {
                // As if it had ended.
            }
            Runtime.getRuntime().halt(0);
        });
        input.setDaemon(true);
        input.start();

        int partitions = Integer.parseInt(arguments[3]);
        Path checkpoints = Path.of(arguments[4]);
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "500 ms");
        settings.setString("taskmanager.memory.network.min", "16mb");
        settings.setString("taskmanager.memory.network.max", "16mb");
        settings.setString("taskmanager.memory.managed.size", "16mb");
        Optional<Path> restored = newest(checkpoints);
        restored.ifPresent(path -> settings.setString("execution.state-recovery.path", path.toUri().toString()));
        var flink = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        flink.setParallelism(2);
        flink.enableCheckpointing(300, CheckpointingMode.EXACTLY_ONCE);
        var source = KafkaSource.<String>builder()
                .setBootstrapServers(arguments[0])
                .setTopics(arguments[1])
                .setGroupId("flink")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        var sink = KafkaSink.<String>builder()
                .setBootstrapServers(arguments[0])
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("flink")
                .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(arguments[5]))
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(arguments[2])
                        .setPartitioner((KafkaPartitioner<String>) (value, key, bytes, topic, all) ->
                                Integer.parseInt(value) % partitions)
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "in").uid("in")
                .keyBy(value -> Integer.parseInt(value) % partitions).map(value -> value).uid("same")
                .sinkTo(sink).uid("out");
        restored.ifPresent(path -> System.out.println("restored " + path));
        System.out.println("started");
        try {
            flink.execute("copy");
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(3);
        }
    }
}
