import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Assigns the groups it reads, one a line, with Kafka's own sticky strategies.
 *
 * A line is "strategy TAB topics TAB members". Topics are separated by ';', each is
 * "name,count,racks": count -1 for a topic without metadata, racks '/'-separated for each
 * partition and '+'-separated within one, or "-". Members are separated by ';', each is
 * "id,static id,rack,generation,topics,owned": topics as '+'-separated positions, owned as
 * '+'-separated "topic.partition"; what is empty is not set.
 *
 * The answer is "ok" TAB for each member, in the order given, its partitions; or "error" TAB the
 * exception's name. It is written before the next line is read.
 */
public final class StickyOracle {
    private static final Node[] NOBODY = {};

    private final String[] names;
    private final Map<String, Node> nodes = new HashMap<>();

    private StickyOracle(String[] names) {
        this.names = names;
    }

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine())
            out.println(answer(line.split("\t", -1)));
    }

    private static String answer(String[] parts) {
        String[] topics = parts[1].isEmpty() ? new String[0] : parts[1].split(";", -1);
        String[] names = new String[topics.length];
        for (int i = 0; i < topics.length; i++)
            names[i] = topics[i].substring(0, topics[i].indexOf(','));
        var oracle = new StickyOracle(names);
        Cluster cluster = oracle.cluster(topics);
        String[] members = parts[2].split(";", -1);
        boolean eager = parts[0].equals("sticky");
        Map<String, Subscription> sorted = new TreeMap<>();
        for (String member : members)
            sorted.put(member.substring(0, member.indexOf(',')), oracle.subscription(member, eager));
        // a leader keeps members in a HashMap too; sorted insertion makes the order reproducible
        Map<String, Subscription> group = new HashMap<>();
        sorted.forEach(group::put);
        ConsumerPartitionAssignor assignor = eager ? new StickyAssignor() : new CooperativeStickyAssignor();
        try {
            var assigned = assignor.assign(cluster, new GroupSubscription(group)).groupAssignment();
            return oracle.shown(members, assigned);
        } catch (RuntimeException failure) {
            return "error\t" + failure.getClass().getSimpleName();
        }
    }

    private Cluster cluster(String[] topics) {
        List<PartitionInfo> found = new ArrayList<>();
        for (String topic : topics) {
            String[] fields = topic.split(",", -1);
            int count = Integer.parseInt(fields[1]);
            String[] racks = fields[2].equals("-") ? null : fields[2].split("/", -1);
            for (int p = 0; p < count; p++) {
                Node[] replicas = racks == null ? NOBODY : replicas(racks[p]);
                found.add(new PartitionInfo(fields[0], p, null, replicas, replicas));
            }
        }
        return new Cluster("cluster", nodes.values(), found, Set.of(), Set.of());
    }

    private Node[] replicas(String racks) {
        if (racks.isEmpty())
            return NOBODY;
        return Arrays.stream(racks.split("\\+")).map(rack ->
            nodes.computeIfAbsent(rack, r -> new Node(nodes.size(), "host", 9092, r))).toArray(Node[]::new);
    }

    private Subscription subscription(String member, boolean eager) {
        String[] fields = member.split(",", -1);
        List<String> topics = new ArrayList<>();
        if (!fields[4].isEmpty())
            for (String topic : fields[4].split("\\+"))
                topics.add(names[Integer.parseInt(topic)]);
        List<TopicPartition> owned = new ArrayList<>();
        if (!fields[5].isEmpty())
            for (String claim : fields[5].split("\\+")) {
                int dot = claim.indexOf('.');
                String topic = names[Integer.parseInt(claim.substring(0, dot))];
                owned.add(new TopicPartition(topic, Integer.parseInt(claim.substring(dot + 1))));
            }
        Optional<String> rack = fields[2].isEmpty() ? Optional.empty() : Optional.of(fields[2]);
        int generation = fields[3].isEmpty() ? -1 : Integer.parseInt(fields[3]);
        ByteBuffer data = null;
        if (eager) {
            // as a member of its own would send it: from its last assignment
            var self = new StickyAssignor();
            self.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
            data = self.subscriptionUserData(new HashSet<>(topics));
            owned = List.of();
        }
        var subscription = new Subscription(topics, data, owned, generation, rack);
        if (!fields[1].isEmpty())
            subscription.setGroupInstanceId(Optional.of(fields[1]));
        return subscription;
    }

    private String shown(String[] members, Map<String, Assignment> assigned) {
        Map<String, Integer> position = new HashMap<>();
        for (int i = 0; i < names.length; i++)
            position.put(names[i], i);
        var line = new StringBuilder("ok");
        for (String member : members) {
            line.append('\t');
            Assignment given = assigned.get(member.substring(0, member.indexOf(',')));
            String between = "";
            for (TopicPartition tp : given.partitions()) {
                line.append(between).append(position.get(tp.topic())).append('.').append(tp.partition());
                between = "+";
            }
        }
        return line.toString();
    }
}
