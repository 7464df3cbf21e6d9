import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordType;

/**
 * Kafka's own records of __consumer_offsets behind lines of text: one question a line in, one answer a line out.
 *
 * "write TYPE VERSION KEY VALUE" has JSON, hexadecimal, and is answered with the record's bytes. "tagged" is the same
 * with an unknown tagged field in every structure of the value. "read KEY VALUE" has bytes, and is answered with type,
 * version and JSON. No value is "-". An exception is answered with "error" and its class.
 */
public class JournalOracle {
    static final HexFormat HEX = HexFormat.of();
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                String[] words = line.split(" ");
                answer = words[0].equals("read") ? read(words) : write(words);
            } catch (RuntimeException | IOException | IllegalAccessException e) {
                answer = "error " + e.getClass().getSimpleName();
            }
            out.println(answer);
        }
        out.flush();
    }

    static String write(String[] words) throws IOException, IllegalAccessException {
        short type = Short.parseShort(words[1]);
        short version = Short.parseShort(words[2]);
        ApiMessage key = CoordinatorRecordJsonConverters.readRecordKeyFromJson(parsed(words[3]), type);
        String written = HEX.formatHex(MessageUtil.toCoordinatorTypePrefixedBytes(key));
        if (words[4].equals("-")) return written + " -";
        ApiMessage value = CoordinatorRecordJsonConverters.readRecordValueFromJson(parsed(words[4]), type, version);
        if (words[0].equals("tagged")) tag(value);
        return written + " " + HEX.formatHex(MessageUtil.toVersionPrefixedBytes(version, value));
    }

    static void tag(Message message) throws IllegalAccessException {
        message.unknownTaggedFields().add(new RawTaggedField(9, new byte[] {1, 2, 3}));
        message.unknownTaggedFields().add(new RawTaggedField(1000, new byte[200]));
        for (Field field : message.getClass().getDeclaredFields()) {
            field.setAccessible(true);
            Object content = field.get(message);
            if (content instanceof Message) tag((Message) content);
            if (content instanceof List)
                for (Object element : (List<?>) content) if (element instanceof Message) tag((Message) element);
        }
    }

    static String read(String[] words) throws IOException {
        ByteBuffer keyBytes = ByteBuffer.wrap(HEX.parseHex(words[1]));
        CoordinatorRecordType type = CoordinatorRecordType.fromId(keyBytes.getShort());
        ApiMessage key = type.newRecordKey();
        key.read(new ByteBufferAccessor(keyBytes), (short) 0);
        String shown = type.id() + " " + hex(CoordinatorRecordJsonConverters.writeRecordKeyAsJson(key));
        if (words[2].equals("-")) return shown + " - -";
        ByteBuffer valueBytes = ByteBuffer.wrap(HEX.parseHex(words[2]));
        ApiMessage value = type.newRecordValue();
        short version = valueBytes.getShort();
        if (version < value.lowestSupportedVersion() || version > value.highestSupportedVersion())
            throw new IllegalArgumentException("version " + version);
        value.read(new ByteBufferAccessor(valueBytes), version);
        return shown + " " + version + " " + hex(CoordinatorRecordJsonConverters.writeRecordValueAsJson(value, version));
    }

    static JsonNode parsed(String word) throws IOException {
        return JSON.readTree(HEX.parseHex(word));
    }

    static String hex(JsonNode node) throws IOException {
        return HEX.formatHex(JSON.writeValueAsBytes(node));
    }
}
