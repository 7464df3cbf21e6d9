import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.TargetAssignmentBuilder.ConsumerTargetAssignmentBuilder;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Computes targets of consumer groups, one group a line, with Kafka's own coordinator classes.
 *
 * A line is "strategy TAB step TAB step ...". A step is "topics|latest|members". Topics are
 * separated by ';', each is "name,id,count". Members are separated by ';', each is
 * "id,static id,rack,topics,owned": topics as '+'-separated positions, owned as '+'-separated
 * "topic.partition"; what is empty is not set. Members are put into the group in the order given.
 *
 * In the first step owned is the target that the group had. In later ones the group goes on from
 * its own, as a coordinator that has been up all the time; owned is ignored. "latest", if set, is
 * the position of the member whose heartbeat brings the change of that step: the others are in the
 * group before, it is added by the computation.
 *
 * The answer is, TAB-separated for each step, '|'-separated for each member in the order given,
 * its target; or "error" and the exception's name.
 */
public final class TargetOracle {
    private final ConsumerGroupPartitionAssignor assignor;
    private final ConsumerGroup group =
        new ConsumerGroup(new LogContext(), new SnapshotRegistry(new LogContext()), "g");
    private boolean started = false;

    private TargetOracle(String strategy) {
        this.assignor = strategy.equals("uniform") ? new UniformAssignor() : new RangeAssignor();
    }

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            var oracle = new TargetOracle(parts[0]);
            List<String> answers = new ArrayList<>();
            try {
                for (int i = 1; i < parts.length; i++)
                    answers.add(oracle.step(parts[i].split("\\|", -1)));
                out.println(String.join("\t", answers));
            } catch (RuntimeException failure) {
                out.println("error " + failure.getClass().getSimpleName() + " " + failure.getMessage());
            }
        }
    }

    private String step(String[] parts) {
        var image = new Image(parts[0]);
        String[] entries = parts[2].split(";", -1);
        Map<String, ConsumerGroupMember> members = new LinkedHashMap<>();
        String latest = null;
        for (int i = 0; i < entries.length; i++) {
            ConsumerGroupMember member = member(image, entries[i].split(",", -1));
            members.put(member.memberId(), member);
            if (parts[1].equals(Integer.toString(i)))
                latest = member.memberId();
        }
        leave(members);
        for (var entry : members.entrySet())
            if (!entry.getKey().equals(latest))
                group.updateMember(entry.getValue());
        if (!started)
            for (String entry : entries)
                setTarget(image, entry.split(",", -1));
        started = true;
        compute(image, latest == null ? null : members.get(latest));
        return shown(image, members);
    }

    private static ConsumerGroupMember member(Image image, String[] fields) {
        var builder = new ConsumerGroupMember.Builder(fields[0]);
        List<String> topics = new ArrayList<>();
        if (!fields[3].isEmpty())
            for (String topic : fields[3].split("\\+"))
                topics.add(image.topics.get(Integer.parseInt(topic)).name());
        builder.setSubscribedTopicNames(topics);
        if (!fields[1].isEmpty())
            builder.setInstanceId(fields[1]);
        if (!fields[2].isEmpty())
            builder.setRackId(fields[2]);
        return builder.build();
    }

    /** Takes out who is gone; a static member's successor has its target from it. */
    private void leave(Map<String, ConsumerGroupMember> members) {
        Map<String, String> successors = new HashMap<>();
        members.values().stream().filter(m -> m.instanceId() != null)
            .forEach(m -> successors.put(m.instanceId(), m.memberId()));
        for (ConsumerGroupMember gone : List.copyOf(group.members().values())) {
            if (members.containsKey(gone.memberId()))
                continue;
            Assignment target = group.targetAssignment(gone.memberId());
            group.removeTargetAssignment(gone.memberId());
            group.removeMember(gone.memberId());
            String successor = gone.instanceId() == null ? null : successors.get(gone.instanceId());
            if (successor != null && !group.hasMember(successor))
                group.updateTargetAssignment(successor, target);
        }
    }

    private void setTarget(Image image, String[] fields) {
        if (fields[4].isEmpty())
            return;
        Map<Uuid, List<Integer>> owned = new LinkedHashMap<>();
        for (String claim : fields[4].split("\\+")) {
            String[] parts = claim.split("\\.");
            Uuid topic = image.topics.get(Integer.parseInt(parts[0])).id();
            owned.computeIfAbsent(topic, __ -> new ArrayList<>()).add(Integer.parseInt(parts[1]));
        }
        var value = new ConsumerGroupTargetAssignmentMemberValue();
        owned.forEach((topic, partitions) -> value.topicPartitions().add(
            new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(topic).setPartitions(partitions)));
        group.updateTargetAssignment(fields[0], Assignment.fromRecord(value));
    }

    private void compute(Image image, ConsumerGroupMember latest) {
        var subscriptions = group.computeSubscribedTopicNames(null, latest);
        int size = group.numMembers() + (latest == null || group.hasMember(latest.memberId()) ? 0 : 1);
        if (latest != null && group.hasMember(latest.memberId()))
            subscriptions = group.computeSubscribedTopicNames(group.getOrMaybeCreateMember(latest.memberId(), false), latest);
        var builder = new ConsumerTargetAssignmentBuilder("g", 1, assignor)
            .withTime(Time.SYSTEM)
            .withMembers(group.members())
            .withStaticMembers(group.staticMembers())
            .withSubscriptionType(ConsumerGroup.subscriptionType(subscriptions, size))
            .withTargetAssignment(group.targetAssignment())
            .withInvertedTargetAssignment(group.invertedTargetAssignment())
            .withMetadataImage(image);
        if (latest != null)
            builder.addOrUpdateMember(latest.memberId(), latest);
        var result = builder.build();
        if (latest != null)
            group.updateMember(latest);
        for (var record : result.records())
            if (record.key() instanceof ConsumerGroupTargetAssignmentMemberKey key)
                group.updateTargetAssignment(key.memberId(),
                    Assignment.fromRecord((ConsumerGroupTargetAssignmentMemberValue) record.value().message()));
    }

    private String shown(Image image, Map<String, ConsumerGroupMember> members) {
        List<String> shown = new ArrayList<>();
        for (String member : members.keySet()) {
            List<String> claims = new ArrayList<>();
            group.targetAssignment(member).partitions().forEach((topic, partitions) ->
                partitions.forEach(number -> claims.add(image.position(topic) + "." + number)));
            shown.add(String.join("+", claims));
        }
        return String.join("|", shown);
    }

    private record Topic(String name, Uuid id, int partitionCount) implements CoordinatorMetadataImage.TopicMetadata {
        @Override
        public List<String> partitionRacks(int partition) {
            return List.of("r" + partition % 3);
        }
    }

    /** The topics of a step; one with a count of -1 is not there. */
    private static final class Image implements CoordinatorMetadataImage {
        private final List<Topic> topics = new ArrayList<>();
        private final Map<String, TopicMetadata> byName = new HashMap<>();
        private final Map<Uuid, TopicMetadata> byId = new HashMap<>();

        Image(String line) {
            for (String entry : line.split(";", -1)) {
                String[] fields = entry.split(",", -1);
                var topic = new Topic(fields[0], Uuid.fromString(fields[1]), Integer.parseInt(fields[2]));
                topics.add(topic);
                if (topic.partitionCount() >= 0) {
                    byName.put(topic.name(), topic);
                    byId.put(topic.id(), topic);
                }
            }
        }

        int position(Uuid id) {
            for (int i = 0; i < topics.size(); i++)
                if (topics.get(i).id().equals(id))
                    return i;
            throw new IllegalStateException("no topic " + id);
        }

        @Override
        public Set<Uuid> topicIds() {
            return byId.keySet();
        }

        @Override
        public Set<String> topicNames() {
            return byName.keySet();
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(String name) {
            return Optional.ofNullable(byName.get(name));
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return Optional.ofNullable(byId.get(id));
        }

        @Override
        public CoordinatorMetadataDelta emptyDelta() {
            return CoordinatorMetadataDelta.EMPTY;
        }

        @Override
        public long version() {
            return 0;
        }

        @Override
        public boolean isEmpty() {
            return byId.isEmpty();
        }
    }
}
