import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group: it polls, and does what it is told in between. */
final class GroupSeat implements Runnable, ConsumerRebalanceListener {
    static final Map<String, String> STRATEGIES = Map.of(
        "range", "RangeAssignor",
        "roundrobin", "RoundRobinAssignor",
        "sticky", "StickyAssignor",
        "cooperative-sticky", "CooperativeStickyAssignor");

    private record Order(Callable<Void> what, CompletableFuture<Void> done) { }

    private final LinkedBlockingQueue<Order> orders = new LinkedBlockingQueue<>();
    private final Properties config;
    private final String topic;
    private final List<Object> handled = new ArrayList<>();
    private KafkaConsumer<String, String> consumer;
    private List<Integer> assigned = List.of();
    private int rebalances;
    private String error;
    private boolean left;

    GroupSeat(Properties settings, JsonNode order) {
        config = settings;
        topic = ClientDriver.text(order, "topic");
        config.put("group.id", ClientDriver.text(order, "group"));
        config.put("auto.offset.reset", "earliest");
        String strategy = ClientDriver.text(order, "strategy");
        if (strategy != null) {
            config.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + STRATEGIES.get(strategy));
        }
        if (ClientDriver.text(order, "instance") != null) {
            config.put("group.instance.id", ClientDriver.text(order, "instance"));
        }
        if (ClientDriver.text(order, "session") != null) {
            config.put("session.timeout.ms", order.get("session").asInt());
        }
        if (ClientDriver.text(order, "heartbeat") != null) {
            config.put("heartbeat.interval.ms", order.get("heartbeat").asInt());
        }
        if ("true".equals(ClientDriver.text(order, "manual"))) {
            config.put("enable.auto.commit", false);
        }
    }

    @Override
    public void run() {
        try {
            StringDeserializer reader = new StringDeserializer();
            consumer = new KafkaConsumer<>(config, reader, reader);
            consumer.subscribe(List.of(topic), this);
            while (!left) {
                turn();
                for (Order order = orders.poll(); order != null; order = orders.poll()) {
                    try {
                        order.done.complete(order.what.call());
                    } catch (Exception refused) {
                        order.done.completeExceptionally(refused);
                    }
                }
            }
        } catch (Throwable failed) {
            synchronized (this) {
                error = ClientDriver.describe(failed);
            }
        }
    }

    private void turn() {
        var records = consumer.poll(Duration.ofMillis(100));
        synchronized (this) {
            records.forEach(each -> handled.add(List.of(each.partition(), each.offset(), each.value())));
            assigned = ClientDriver.numbers(consumer.assignment());
        }
    }

    private Object order(Callable<Void> what) throws Exception {
        CompletableFuture<Void> done = new CompletableFuture<>();
        orders.add(new Order(what, done));
        return done.get(ClientDriver.PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    Object commit(String how) throws Exception {
        return order(() -> {
            if (how.equals("sync")) {
                consumer.commitSync();
                return null;
            }
            CompletableFuture<Void> done = new CompletableFuture<>();
            consumer.commitAsync((offsets, refused) -> {
                if (refused == null) {
                    done.complete(null);
                } else {
                    done.completeExceptionally(refused);
                }
            });
            long end = System.currentTimeMillis() + ClientDriver.PATIENCE_MS;
            while (!done.isDone() && System.currentTimeMillis() < end) {
                turn();
            }
            return done.get(0, TimeUnit.MILLISECONDS);
        });
    }

    Object leave() throws Exception {
        return order(() -> {
            left = true;
            consumer.close();
            return null;
        });
    }

    synchronized Object show() {
        Map<String, Object> shown = new HashMap<>();
        shown.put("assigned", assigned);
        shown.put("rebalances", rebalances);
        shown.put("handled", new ArrayList<>(handled));
        shown.put("error", error);
        return shown;
    }

    @Override
    public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        rebalances++;
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) { }
}
