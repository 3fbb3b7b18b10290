// Prints what Apache Kafka's classes say of its protocol, a line of JSON each:
//   {"schema": NAME, "version": N, "fields": ...}   for each version of each message
//   {"error": NAME, "code": N, "retriable": B}      for each error code
// A field is [NAME, TYPE]. TYPE is Kafka's word, {"array": TYPE, "is_nullable": B}, or {"fields": ...,
// "is_nullable": B}. Tagged fields are the last: ["_tagged_fields", {"tags": {TAG: FIELD}}].
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

public class Schemas {
    public static void main(String[] args) {
        for (ApiKeys key : ApiKeys.values()) {
            print(key.name() + " request", key.messageType.requestSchemas());
            print(key.name() + " response", key.messageType.responseSchemas());
        }
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.println("{\"error\": \"" + error.name().toLowerCase() + "\", \"code\": " + error.code()
                + ", \"retriable\": " + retriable + "}");
        }
    }

    private static void print(String name, Schema[] versions) {
        for (int version = 0; version < versions.length; version++)
            if (versions[version] != null)
                System.out.println("{\"schema\": \"" + name + "\", \"version\": " + version
                    + ", \"fields\": " + fields(versions[version]) + "}");
    }

    private static String fields(Schema schema) {
        List<String> fields = new ArrayList<>();
        for (BoundField field : schema.fields())
            fields.add(pair(field.def.name, field.def.type));
        return "[" + String.join(", ", fields) + "]";
    }

    private static String pair(String name, Type type) {
        return "[\"" + name + "\", " + described(type) + "]";
    }

    @SuppressWarnings("unchecked")
    private static Map<Integer, Field> fieldsOf(TaggedFields tagged) {
        try {  // Kafka 3.9 has no method for it
            var field = TaggedFields.class.getDeclaredField("fields");
            field.setAccessible(true);
            return (Map<Integer, Field>) field.get(tagged);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String described(Type type) {
        if (type instanceof TaggedFields tagged) {
            List<String> tags = new ArrayList<>();
            fieldsOf(tagged).forEach((tag, field) -> tags.add("\"" + tag + "\": " + pair(field.name, field.type)));
            return "{\"tags\": {" + String.join(", ", tags) + "}}";
        }
        Optional<Type> element = type.arrayElementType();
        if (element.isPresent())
            return "{\"array\": " + described(element.get()) + ", \"is_nullable\": " + type.isNullable() + "}";
        if (type instanceof Schema schema)
            return "{\"fields\": " + fields(schema) + ", \"is_nullable\": " + type.isNullable() + "}";
        return "\"" + type + "\"";
    }
}
