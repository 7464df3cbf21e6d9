import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.HashSet;
import java.util.Optional;
import java.util.TreeMap;

import com.sun.management.OperatingSystemMXBean;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * The duty of a group's leader in Java: subscription bytes in, assignment bytes out.
 *
 * Usage: LeaderBench strategy scenario topics partitions members rounds names [folder]
 *   strategy: sticky, cooperative-sticky; scenario: fresh, leave, join, each for a group
 *   with equal subscriptions, or with "-mixed" behind it for one in which one more member has one
 *   topic only; names: numbered, scattered. Topic names that are
 *   numbered make Kafka's hashed collection of topics cluster, at many times the cost of decoding;
 *   scattered ones do not.
 * Prints one line: CPU seconds of the whole process for decode, assign, encode and their sum, each
 * the best of the rounds, the first third of which is warm-up. With a folder it writes the group's
 * bytes there, as members.bin: for each member its id and its metadata, each behind a 32-bit length.
 */
public class LeaderBench {
    static final String SINGLE = "single";
    static final OperatingSystemMXBean OS = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] args) throws IOException {
        String strategy = args[0];
        int topics = Integer.parseInt(args[2]), partitions = Integer.parseInt(args[3]), members = Integer.parseInt(args[4]);
        int rounds = Integer.parseInt(args[5]);
        Cluster cluster = cluster(args[6], topics, partitions);
        Map<String, ByteBuffer> group = group(strategy, args[1], cluster, members);
        if (args.length > 7) write(group, Path.of(args[7]));
        double[] best = {1e9, 1e9, 1e9, 1e9};
        for (int round = 0; round < rounds; round++) {
            System.gc();
            double[] spent = lead(strategy, cluster, group);
            if (round >= rounds / 3)
                for (int part = 0; part < best.length; part++) best[part] = Math.min(best[part], spent[part]);
        }
        System.out.println(String.format(Locale.ROOT, "decode %.3f assign %.3f encode %.3f total %.3f",
            best[0], best[1], best[2], best[3]));
    }

    /** CPU seconds of the process, the garbage collector's and the compiler's threads included. */
    static double cpu() {
        return OS.getProcessCpuTime() / 1e9;
    }

    static double[] lead(String strategy, Cluster cluster, Map<String, ByteBuffer> group) {
        double start = cpu();
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (Map.Entry<String, ByteBuffer> entry : group.entrySet())
            subscriptions.put(entry.getKey(), ConsumerProtocol.deserializeSubscription(entry.getValue().duplicate()));
        double decoded = cpu();
        Map<String, Assignment> assignments = assignor(strategy)
            .assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        double assigned = cpu();
        long bytes = 0;
        Map<String, ByteBuffer> out = new HashMap<>();
        for (Map.Entry<String, Assignment> entry : assignments.entrySet()) {
            ByteBuffer data = ConsumerProtocol.serializeAssignment(entry.getValue());
            bytes += data.remaining();
            out.put(entry.getKey(), data);
        }
        double encoded = cpu();
        if (bytes == 0 || out.size() != group.size()) throw new IllegalStateException("nothing assigned");
        return new double[] {decoded - start, assigned - decoded, encoded - assigned, encoded - start};
    }

    static AbstractPartitionAssignor assignor(String strategy) {
        return strategy.equals("sticky") ? new StickyAssignor() : new CooperativeStickyAssignor();
    }

    static Cluster cluster(String names, int topics, int partitions) {
        Node[] nodes = {new Node(0, "localhost", 9092)};
        List<PartitionInfo> infos = new ArrayList<>();
        for (int topic = 0; topic < topics; topic++)
            for (int number = 0; number < partitions; number++)
                infos.add(new PartitionInfo(topic(names, topic), number, nodes[0], nodes, nodes));
        return new Cluster("cluster", List.of(nodes), infos, Set.of(), Set.of());
    }

    static String topic(String names, int number) {
        // an odd factor keeps them distinct
        return names.equals("numbered")
            ? String.format(Locale.ROOT, "topic-%05d", number)
            : String.format(Locale.ROOT, "%08x", number * 0x9E3779B1);
    }

    static String member(int number) {
        return String.format(Locale.ROOT, "consumer-group-%05d", number);
    }

    /** The group's bytes at the moment of the rebalance: a stable group first, then the change. */
    static Map<String, ByteBuffer> group(String strategy, String scenario, Cluster cluster, int members) {
        List<String> topics = new ArrayList<>(cluster.topics());
        topics.sort(null);
        Map<String, List<TopicPartition>> owned = new TreeMap<>();
        for (int member = 0; member < members; member++) owned.put(member(member), List.of());
        if (scenario.endsWith("-mixed")) owned.put(SINGLE, List.of());
        if (!scenario.startsWith("fresh")) {
            Map<String, Subscription> first = new HashMap<>();
            owned.keySet().forEach(id -> first.put(id, new Subscription(subscribed(id, topics))));
            assignor(strategy).assign(cluster, new GroupSubscription(first)).groupAssignment()
                .forEach((id, assignment) -> owned.put(id, assignment.partitions()));
        }
        if (scenario.startsWith("leave")) owned.remove(member(members / 2));
        if (scenario.startsWith("join")) owned.put("joining", List.of());
        Map<String, ByteBuffer> group = new TreeMap<>();
        owned.forEach((id, held) -> group.put(id, subscription(strategy, subscribed(id, topics), held)));
        return group;
    }

    static List<String> subscribed(String member, List<String> topics) {
        return member.equals(SINGLE) ? topics.subList(0, 1) : topics;
    }

    static ByteBuffer subscription(String strategy, List<String> topics, List<TopicPartition> owned) {
        AbstractPartitionAssignor assignor = assignor(strategy);
        boolean member = !owned.isEmpty();
        if (member)
            assignor.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("group", 5, "member", Optional.empty()));
        ByteBuffer userData = assignor.subscriptionUserData(new HashSet<>(topics));
        // an eager member has given everything up when it joins
        List<TopicPartition> kept = strategy.equals("sticky") ? List.of() : owned;
        return ConsumerProtocol.serializeSubscription(
            new Subscription(topics, userData, kept, member ? 5 : -1, Optional.empty()));
    }

    static void write(Map<String, ByteBuffer> group, Path folder) throws IOException {
        Path file = folder.resolve("members.bin");
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(file)))) {
            for (Map.Entry<String, ByteBuffer> entry : group.entrySet()) {
                byte[] id = entry.getKey().getBytes(java.nio.charset.StandardCharsets.UTF_8);
                byte[] data = new byte[entry.getValue().remaining()];
                entry.getValue().duplicate().get(data);
                out.writeInt(id.length);
                out.write(id);
                out.writeInt(data.length);
                out.write(data);
            }
        }
    }
}
