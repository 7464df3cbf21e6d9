import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member that tells all it does, as tests/system/consumer/driver/reporting_member.py says. */
final class NotedSeat implements Runnable, ConsumerRebalanceListener {
    private final String name;
    private final Properties config;
    private final JsonNode order;
    private final boolean commits;
    private final CompletableFuture<Void> left = new CompletableFuture<>();
    private KafkaConsumer<String, String> consumer;
    private volatile boolean leaving;

    NotedSeat(Properties settings, JsonNode order) {
        name = ClientDriver.text(order, "member");
        config = settings;
        this.order = order;
        String how = ClientDriver.text(order, "commits");
        commits = how == null || how.equals("each");
        config.put("enable.auto.commit", "auto".equals(how));
        order.get("settings").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
        if (order.hasNonNull("strategies")) {
            List<String> classes = new ArrayList<>();
            order.get("strategies").forEach(each -> classes.add(
                "org.apache.kafka.clients.consumer." + GroupSeat.STRATEGIES.get(each.asText())));
            config.put("partition.assignment.strategy", String.join(",", classes));
        }
    }

    @Override
    public void run() {
        try {
            StringDeserializer reader = new StringDeserializer();
            consumer = new KafkaConsumer<>(config, reader, reader);
            subscribe();
            while (!leaving) {
                handOut(consumer.poll(Duration.ofMillis(100)));
            }
            consumer.close();
            tell("ended", Map.of());
            left.complete(null);
        } catch (Throwable failed) {
            tell("failed", Map.of("error", ClientDriver.describe(failed)));
            left.completeExceptionally(failed);
        }
    }

    private void subscribe() {
        if (order.hasNonNull("pattern")) {
            consumer.subscribe(Pattern.compile(ClientDriver.text(order, "pattern")), this);
            return;
        }
        List<String> topics = new ArrayList<>();
        order.get("topics").forEach(each -> topics.add(each.asText()));
        consumer.subscribe(topics, this);
    }

    private void handOut(ConsumerRecords<String, String> records) {
        if (records.isEmpty()) {
            return;
        }
        List<Object> told = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        for (ConsumerRecord<String, String> each : records) {
            told.add(List.of(each.topic(), each.partition(), each.offset(), each.value()));
            next.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
        }
        tell("handed", Map.of("records", told));
        if (commits) {
            commit(next);
        }
    }

    private void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        Map<String, Object> facts = new HashMap<>();
        List<Object> listed = new ArrayList<>();
        offsets.forEach((place, next) -> listed.add(List.of(place.topic(), place.partition(), next.offset())));
        facts.put("offsets", listed);
        facts.put("began", now());
        facts.put("error", null);
        try {
            consumer.commitSync(offsets);
        } catch (RuntimeException refused) { // told; the next owner handles them again
            facts.put("error", ClientDriver.describe(refused));
        }
        tell("committed", facts);
    }

    Object leave() throws Exception {
        leaving = true;
        return left.get(ClientDriver.PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned", Map.of(
            "generation", consumer.groupMetadata().generationId(), "partitions", places(partitions)));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (!partitions.isEmpty()) {
            tell("revoked", Map.of("partitions", places(partitions), "lost", false));
        }
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        if (!partitions.isEmpty()) {
            tell("revoked", Map.of("partitions", places(partitions), "lost", true));
        }
    }

    private static List<Object> places(Collection<TopicPartition> partitions) {
        List<Object> found = new ArrayList<>();
        partitions.forEach(each -> found.add(List.of(each.topic(), each.partition())));
        return found;
    }

    private void tell(String kind, Map<String, Object> facts) {
        Map<String, Object> line = new HashMap<>(facts);
        line.put("member", name);
        line.put("kind", kind);
        line.put("at", now());
        ClientDriver.say(line);
    }

    /** The machine's monotonic clock, which Python's time.monotonic reads too. */
    private static double now() {
        return System.nanoTime() / 1e9;
    }
}
