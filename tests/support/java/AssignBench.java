import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Times Kafka's own assignors on a case file of bench/case.py.
 *
 * Usage: AssignBench FILE sticky|sticky-counts|range|roundrobin|leader LIMIT BUDGET
 * Each timed step is run until BUDGET (CPU seconds) is used up, or three times within three times
 * that; a run that passes LIMIT CPU seconds ends the program. Prints "run STEP CPU" for each run, "over STEP CPU" for one that
 * passed the limit, "result STEP MIN-LOAD MAX-LOAD MOVED" at a step's end.
 *
 * A run's CPU is that of the calling thread and of the garbage collections within the call. That of
 * the compiler's threads is left out, as if the JVM were warm; the process's own figure would come
 * in steps of 10 ms.
 */
public final class AssignBench {
    private static final int GENERATION = 1;
    private static final int MOST_RUNS = 300;
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static volatile String running = null;
    private static volatile double began = 0;

    /** Kafka's sticky placement over ownership that is already in objects: no bytes are read. */
    private static final class Sticky extends AbstractStickyAssignor {
        @Override
        public String name() {
            return "sticky";
        }

        @Override
        protected MemberData memberData(Subscription subscription) {
            return new MemberData(subscription.ownedPartitions(), subscription.generationId());
        }
    }

    private record Step(String name, String after, String play, Map<String, Integer> members) {
        boolean timed() {
            return play.equals("timed");
        }
    }

    private final Map<String, List<PartitionInfo>> infos = new LinkedHashMap<>();
    private final List<List<String>> classes = new ArrayList<>();
    private final List<Step> steps = new ArrayList<>();
    private final Map<String, Map<String, List<TopicPartition>>> results = new HashMap<>();
    private final String work;
    private final double budget;

    private AssignBench(Path file, String work, double budget) throws IOException {
        this.work = work;
        this.budget = budget;
        try (BufferedReader lines = Files.newBufferedReader(file)) {
            read(lines);
        }
    }

    public static void main(String[] args) throws Exception {
        AssignBench bench =
                new AssignBench(Path.of(args[0]), args[1], Double.parseDouble(args[3]));
        watch(Double.parseDouble(args[2]));
        for (Step step : bench.steps) {
            if (step.play.equals("dealt")) {
                bench.results.put(step.name, bench.deal(step));
            } else {
                bench.run(step);
            }
        }
    }

    private void read(BufferedReader lines) throws IOException {
        Node[] nowhere = {Node.noNode()};
        List<String> topics = new ArrayList<>();
        int count = Integer.parseInt(lines.readLine().split(" ")[1]);
        for (int i = 0; i < count; i++) {
            String[] words = lines.readLine().split(" ");
            List<PartitionInfo> partitions = new ArrayList<>();
            for (int p = 0; p < Integer.parseInt(words[1]); p++) {
                partitions.add(new PartitionInfo(words[0], p, Node.noNode(), nowhere, nowhere));
            }
            topics.add(words[0]);
            infos.put(words[0], partitions);
        }
        count = Integer.parseInt(lines.readLine().split(" ")[1]);
        for (int i = 0; i < count; i++) {
            List<String> subscribed = new ArrayList<>();
            for (String index : lines.readLine().split(" ")) {
                subscribed.add(topics.get(Integer.parseInt(index)));
            }
            classes.add(subscribed);
        }
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Map<String, Integer> members = new LinkedHashMap<>();
            for (int i = 0; i < Integer.parseInt(words[4]); i++) {
                String[] member = lines.readLine().split(" ");
                members.put(member[0], Integer.parseInt(member[1]));
            }
            steps.add(new Step(words[1], words[2], words[3], members));
        }
    }

    /** Ends the program when the run under way has used more than this. */
    private static void watch(double limit) {
        Thread thread =
                new Thread(
                        () -> {
                            while (true) {
                                String step = running;
                                double used = processCpu() - began;
                                if (step != null && used > limit && step.equals(running)) {
                                    System.out.println("over " + step + " " + used);
                                    System.out.flush();
                                    Runtime.getRuntime().halt(0);
                                }
                                try {
                                    Thread.sleep(50);
                                } catch (InterruptedException e) {
                                    return;
                                }
                            }
                        });
        thread.setDaemon(true);
        thread.start();
    }

    private static double processCpu() {
        return SYSTEM.getProcessCpuTime() / 1e9;
    }

    /** Of this thread and of the collector, which has a thread of its own. */
    private static double callCpu() {
        double used = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() / 1e9;
        for (GarbageCollectorMXBean collector : ManagementFactory.getGarbageCollectorMXBeans()) {
            used += collector.getCollectionTime() / 1e3;
        }
        return used;
    }

    private void run(Step step) {
        Map<String, List<TopicPartition>> owned = results.getOrDefault(step.after, Map.of());
        Map<String, Subscription> group = new HashMap<>();
        step.members.forEach(
                (member, set) -> {
                    List<TopicPartition> held = owned.getOrDefault(member, List.of());
                    int generation = held.isEmpty() ? -1 : GENERATION;
                    group.put(
                            member,
                            new Subscription(
                                    classes.get(set), null, held, generation, Optional.empty()));
                });
        Supplier<Supplier<Map<String, List<TopicPartition>>>> prepare =
                work.equals("leader") ? leader(group) : solver(step, group);
        Map<String, List<TopicPartition>> result = null;
        double spent = 0;
        for (int run = 0; run == 0 || step.timed() && again(run, spent); run++) {
            Supplier<Map<String, List<TopicPartition>>> call = prepare.get();
            result = null;
            System.gc();
            began = processCpu();
            running = step.name;
            double start = callCpu();
            result = call.get();
            double used = callCpu() - start;
            running = null;
            spent += used;
            if (step.timed()) {
                System.out.println("run " + step.name + " " + used);
                System.out.flush();
            }
        }
        results.put(step.name, result);
        report(step, owned, result);
    }

    private boolean again(int run, double spent) {
        return run < MOST_RUNS && (spent < budget || run < 3 && spent < 3 * budget);
    }

    /** Each topic in a circle over its subscribers. */
    private Map<String, List<TopicPartition>> deal(Step step) {
        Map<String, List<TopicPartition>> result = new HashMap<>();
        Map<String, List<String>> subscribers = new HashMap<>();
        step.members.forEach(
                (member, set) -> {
                    result.put(member, new ArrayList<>());
                    for (String topic : classes.get(set)) {
                        subscribers.computeIfAbsent(topic, t -> new ArrayList<>()).add(member);
                    }
                });
        subscribers.forEach(
                (topic, members) -> {
                    for (int p = 0; p < infos.get(topic).size(); p++) {
                        String member = members.get(p % members.size());
                        result.get(member).add(new TopicPartition(topic, p));
                    }
                });
        return result;
    }

    /**
     * The placement alone: subscriptions and ownership are objects already, and so are partitions,
     * as a client's metadata holds them; with "sticky-counts" those are made within the call.
     */
    private Supplier<Supplier<Map<String, List<TopicPartition>>>> solver(
            Step step, Map<String, Subscription> group) {
        Map<String, List<PartitionInfo>> asked = new HashMap<>();
        Set.copyOf(step.members.values())
                .forEach(set -> classes.get(set).forEach(t -> asked.put(t, infos.get(t))));
        Map<String, Integer> counts = new HashMap<>();
        asked.forEach((topic, partitions) -> counts.put(topic, partitions.size()));
        return () -> {
            AbstractPartitionAssignor assignor =
                    switch (work) {
                        case "range" -> new RangeAssignor();
                        case "roundrobin" -> new RoundRobinAssignor();
                        default -> new Sticky();
                    };
            return work.equals("sticky-counts")
                    ? () -> assignor.assign(counts, group)
                    : () -> assignor.assignPartitions(asked, group);
        };
    }

    /** A leader's duty: subscription bytes in, assignment bytes out. */
    private Supplier<Supplier<Map<String, List<TopicPartition>>>> leader(
            Map<String, Subscription> group) {
        List<PartitionInfo> all = new ArrayList<>();
        infos.values().forEach(all::addAll);
        Cluster cluster =
                new Cluster("bench", List.of(), all, Collections.emptySet(), Collections.emptySet());
        Map<String, ByteBuffer> bytes = new LinkedHashMap<>();
        group.forEach((id, told) -> bytes.put(id, ConsumerProtocol.serializeSubscription(told)));
        return () -> {
            CooperativeStickyAssignor assignor = new CooperativeStickyAssignor();
            return () -> duty(assignor, cluster, bytes);
        };
    }

    private static Map<String, List<TopicPartition>> duty(
            CooperativeStickyAssignor assignor, Cluster cluster, Map<String, ByteBuffer> bytes) {
        Map<String, Subscription> group = new HashMap<>();
        bytes.forEach(
                (id, told) ->
                        group.put(id, ConsumerProtocol.deserializeSubscription(told.duplicate())));
        Map<String, Assignment> given =
                assignor.assign(cluster, new GroupSubscription(group)).groupAssignment();
        Map<String, List<TopicPartition>> result = new HashMap<>();
        long written = 0;
        for (Map.Entry<String, Assignment> entry : given.entrySet()) {
            written += ConsumerProtocol.serializeAssignment(entry.getValue()).remaining();
            result.put(entry.getKey(), entry.getValue().partitions());
        }
        if (written == 0) {
            throw new IllegalStateException("nothing was assigned");
        }
        return result;
    }

    private static void report(
            Step step,
            Map<String, List<TopicPartition>> owned,
            Map<String, List<TopicPartition>> result) {
        Map<TopicPartition, String> before = new HashMap<>();
        owned.forEach((member, held) -> held.forEach(p -> before.put(p, member)));
        int least = Integer.MAX_VALUE;
        int most = 0;
        int moved = 0;
        for (Map.Entry<String, List<TopicPartition>> entry : result.entrySet()) {
            least = Math.min(least, entry.getValue().size());
            most = Math.max(most, entry.getValue().size());
            for (TopicPartition partition : entry.getValue()) {
                String holder = before.get(partition);
                if (holder != null
                        && step.members.containsKey(holder)
                        && !holder.equals(entry.getKey())) {
                    moved++;
                }
            }
        }
        if (step.timed()) {
            System.out.println("result " + step.name + " " + least + " " + most + " " + moved);
            System.out.flush();
        }
    }
}
