import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Answers cases with Kafka's own Range and RoundRobin: one case a line on standard input, one
 * answer a line on standard output.
 *
 * <pre>
 * case:   strategy TAB topic ... TAB member ...      (lists separated by spaces)
 * topic:  name/partition;partition;...               partition: racks of its replicas joined by +
 * member: id/static id/rack/topic+topic+...
 * answer: member=topic-partition,topic-partition ... (every member, sorted)
 * </pre>
 *
 * A rack or static id that is absent is written ~, a rack that is an empty string !.
 */
public final class RangeRoundRobinOracle {
    private static final String ABSENT = "~";

    public static void main(String[] args) throws IOException {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split("\t", -1)));
        }
        out.flush();
    }

    private static String answer(String[] fields) {
        ConsumerPartitionAssignor assignor =
            fields[0].equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
        Map<String, ConsumerPartitionAssignor.Assignment> given =
            assignor.assign(cluster(fields[1]), new GroupSubscription(members(fields[2])))
                .groupAssignment();
        List<String> parts = new ArrayList<>();
        new TreeMap<>(given).forEach((member, assignment) -> {
            List<String> partitions = new ArrayList<>();
            for (TopicPartition partition : assignment.partitions()) {
                partitions.add(partition.toString());
            }
            parts.add(member + "=" + String.join(",", partitions));
        });
        return String.join(" ", parts);
    }

    private static Cluster cluster(String topics) {
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : words(topics)) {
            String[] nameAndPartitions = topic.split("/", -1);
            String[] racks = nameAndPartitions[1].split(";", -1);
            for (int number = 0; number < racks.length; number++) {
                Node[] replicas = replicas(racks[number]);
                partitions.add(
                    new PartitionInfo(nameAndPartitions[0], number, null, replicas, replicas));
            }
        }
        return new Cluster(
            "oracle", List.of(), partitions, Collections.emptySet(), Collections.emptySet());
    }

    private static Node[] replicas(String racks) {
        if (racks.isEmpty()) {
            return new Node[0];
        }
        String[] names = racks.split("\\+", -1);
        Node[] nodes = new Node[names.length];
        for (int id = 0; id < names.length; id++) {
            nodes[id] = new Node(id, "host", 9092, optional(names[id]).orElse(null));
        }
        return nodes;
    }

    private static Map<String, Subscription> members(String members) {
        Map<String, Subscription> found = new TreeMap<>();
        for (String member : words(members)) {
            String[] parts = member.split("/", -1);
            List<String> topics = parts[3].isEmpty() ? List.of() : List.of(parts[3].split("\\+"));
            Subscription subscription =
                new Subscription(topics, null, List.of(), -1, optional(parts[2]));
            subscription.setGroupInstanceId(optional(parts[1]));
            found.put(parts[0], subscription);
        }
        return found;
    }

    private static Optional<String> optional(String text) {
        if (text.equals(ABSENT)) {
            return Optional.empty();
        }
        return Optional.of(text.equals("!") ? "" : text);
    }

    private static List<String> words(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(" "));
    }
}
