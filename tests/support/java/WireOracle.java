import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HexFormat;
import java.util.Random;

import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.RawTaggedField;

/**
 * Kafka's own message classes behind lines of text: one question a line in, one answer a line out.
 *
 * A question is "request" or "response", an API's key, a version, a seed and a frame without its
 * length, in hexadecimal. The answer: the frame written anew, the bytes that were left, header and
 * body as JSON, separated by blanks. Where the seed is not 0, what is written anew has tagged fields
 * that no schema knows, in the header and in some of the structs. An exception is answered with
 * "error" and its class; a frame
 * that cannot be written anew is "-".
 */
public class WireOracle {
    static final HexFormat HEX = HexFormat.of();
    static final int UNKNOWN_TAG = 20;

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" ", -1));
            } catch (Exception e) {
                answer = "error " + e.getClass().getSimpleName();
            }
            out.println(answer);
        }
        out.flush();
    }

    static String answer(String[] words) throws Exception {
        boolean request = words[0].equals("request");
        ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[1]));
        short version = Short.parseShort(words[2]);
        long seed = Long.parseLong(words[3]);
        ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(words[4]));
        ByteBufferAccessor source = new ByteBufferAccessor(buffer);

        ApiMessage header = request ? new RequestHeaderData() : new ResponseHeaderData();
        short headerVersion = request ? type.requestHeaderVersion(version) : type.responseHeaderVersion(version);
        header.read(source, headerVersion);
        ApiMessage body = request ? type.newRequest() : type.newResponse();
        body.read(source, version);
        int left = buffer.remaining();
        String shown = json(header, headerVersion) + " " + json(body, version);

        if (seed != 0) {
            Random random = new Random(seed);
            short firstFlexible = request ? (short) 2 : (short) 1;
            if (headerVersion >= firstFlexible) tag(header, random);
            if (type.requestHeaderVersion(version) >= 2) tag(body, random);
        }
        String written;
        try {
            written = hex(header, headerVersion) + hex(body, version);
        } catch (RuntimeException e) { // it reads unknown tags in any order, but does not write them so
            written = "-";
        }
        return written + " " + left + " " + shown;
    }

    /** Tagged fields of a time to come, in a message and in the structs within it. */
    static void tag(Message message, Random random) throws ReflectiveOperationException {
        int count = random.nextInt(3);
        for (int i = 0; i < count; i++) {
            byte[] data = new byte[random.nextInt(4) == 0 ? 200 : random.nextInt(5)];
            random.nextBytes(data);
            message.unknownTaggedFields().add(new RawTaggedField(UNKNOWN_TAG + i * 200, data));
        }
        for (Field field : message.getClass().getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers())) continue;
            field.setAccessible(true);
            Object value = field.get(message);
            if (value instanceof Message inner && !inner.equals(inner.getClass().getConstructor().newInstance()))
                tag(inner, random); // one of only defaults is not written
            if (value instanceof Collection<?> many)
                for (Object each : many) if (each instanceof Message inner) tag(inner, random);
        }
    }

    static String hex(ApiMessage message, short version) {
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] copy = new byte[written.remaining()];
        written.get(copy);
        return HEX.formatHex(copy);
    }

    static String json(ApiMessage message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        String found = converter
            .getMethod("write", message.getClass(), short.class, boolean.class)
            .invoke(null, message, version, false)
            .toString();
        return HEX.formatHex(found.getBytes(StandardCharsets.UTF_8));
    }
}
