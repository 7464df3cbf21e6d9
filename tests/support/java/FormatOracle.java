import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own byte formats behind lines of text: one question a line in, one answer a line out.
 *
 * Text and bytes are hexadecimal behind an "x", null is "-", list elements are separated by commas,
 * a partition is topic:number. An exception is answered with "error" and its class.
 */
public class FormatOracle {
    static final HexFormat HEX = HexFormat.of();

    static class OpenSticky extends StickyAssignor {
        String read(ByteBuffer userData) {
            return shown(memberData(new Subscription(List.of(), userData)));
        }
    }

    static class OpenCooperative extends CooperativeStickyAssignor {
        String read(ByteBuffer userData) {
            return shown(memberData(new Subscription(List.of(), userData)));
        }
    }

    static String shown(StickyAssignor.MemberData data) {
        return data.generation.orElse(-1) + " " + partitions(data.partitions);
    }

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" "));
            } catch (RuntimeException e) {
                answer = "error " + e.getClass().getSimpleName();
            }
            out.println(answer);
        }
        out.flush();
    }

    static String answer(String[] words) {
        switch (words[0]) {
            case "write-subscription":
                return hex(ConsumerProtocol.serializeSubscription(new Subscription(
                    texts(words[5]), bytes(words[4]), parsed(words[6]),
                    Integer.parseInt(words[2]), Optional.ofNullable(text(words[3]))), Short.parseShort(words[1])));
            case "read-subscription":
                Subscription s = ConsumerProtocol.deserializeSubscription(bytes(words[1]));
                return s.generationId().orElse(-1) + " " + s.rackId().map(FormatOracle::hex).orElse("-") + " "
                    + hex(s.userData()) + " "
                    + s.topics().stream().map(FormatOracle::hex).collect(Collectors.joining(",")) + " "
                    + partitions(s.ownedPartitions());
            case "write-assignment":
                return hex(ConsumerProtocol.serializeAssignment(
                    new Assignment(parsed(words[3]), bytes(words[2])), Short.parseShort(words[1])));
            case "read-assignment":
                Assignment a = ConsumerProtocol.deserializeAssignment(bytes(words[1]));
                return hex(a.userData()) + " " + partitions(a.partitions());
            case "write-sticky":
                StickyAssignor sticky = new StickyAssignor();
                sticky.onAssignment(new Assignment(parsed(words[2])), generation(words[1]));
                return hex(sticky.subscriptionUserData(Set.of()));
            case "read-sticky":
                return new OpenSticky().read(bytes(words[1]));
            case "write-cooperative":
                CooperativeStickyAssignor cooperative = new CooperativeStickyAssignor();
                cooperative.onAssignment(new Assignment(List.of()), generation(words[1]));
                return hex(cooperative.subscriptionUserData(Set.of()));
            case "read-cooperative":
                return new OpenCooperative().read(bytes(words[1]));
            case "map-order":
                Map<String, Integer> map = new HashMap<>();
                for (String key : texts(words[1])) map.put(key, map.size());
                return map.values().stream().map(String::valueOf).collect(Collectors.joining(","));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    static ConsumerGroupMetadata generation(String word) {
        return new ConsumerGroupMetadata("group", Integer.parseInt(word), "member", Optional.empty());
    }

    static ByteBuffer bytes(String word) {
        return word.equals("-") ? null : ByteBuffer.wrap(HEX.parseHex(word, 1, word.length()));
    }

    static String text(String word) {
        return word.equals("-") ? null : new String(HEX.parseHex(word, 1, word.length()), StandardCharsets.UTF_8);
    }

    static List<String> texts(String word) {
        List<String> found = new ArrayList<>();
        if (!word.equals("-")) for (String part : word.split(",")) found.add(text(part));
        return found;
    }

    static List<TopicPartition> parsed(String word) {
        List<TopicPartition> found = new ArrayList<>();
        if (!word.equals("-"))
            for (String part : word.split(",")) {
                int colon = part.indexOf(':');
                found.add(new TopicPartition(text(part.substring(0, colon)), Integer.parseInt(part.substring(colon + 1))));
            }
        return found;
    }

    static String hex(String text) {
        return "x" + HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "-";
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return "x" + HEX.formatHex(copy);
    }

    static String partitions(List<TopicPartition> partitions) {
        if (partitions.isEmpty()) return "-";
        return partitions.stream().map(tp -> hex(tp.topic()) + ":" + tp.partition()).collect(Collectors.joining(","));
    }
}
