import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.HexFormat;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/** Reads batches, one a line in hex, as Kafka's consumer does; says a digest of the values, or what was raised. */
public class ReadBatches {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println(read(HexFormat.of().parseHex(line)));
        }
    }

    private static String read(byte[] bytes) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            RecordBatch batch = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches().iterator().next();
            batch.ensureValid();
            try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                while (records.hasNext()) {
                    Record record = records.next();
                    if (record.hasValue()) {
                        byte[] value = new byte[record.valueSize()];
                        record.value().get(value);
                        digest.update(value);
                    }
                    digest.update((byte) 0);
                }
            }
            return "OK " + HexFormat.of().formatHex(digest.digest());
        } catch (Throwable error) {
            StringBuilder said = new StringBuilder("ERROR");
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                said.append(" / ").append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage());
            }
            return said.toString().replace('\n', ' ');
        }
    }
}
