import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's own producer, consumer, admin client and command-line tools, told what to do by lines of
 * JSON on standard input; tests/support/clients/driver/base.py has the language. One process does many
 * orders at once, so that a Java is started once.
 */
public final class ClientDriver {
    static final long PATIENCE_MS = 60_000;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, GroupSeat> SEATS = new ConcurrentHashMap<>();
    private static final Map<String, NotedSeat> NOTED = new ConcurrentHashMap<>();
    private static final PrintStream ANSWERS = System.out;
    private static final PrintStream LOG = System.err;
    private static volatile OutputStream caught;

    public static void main(String[] args) throws Exception {
        // What is logged must not come between the answers; what a tool prints is caught. Scala keeps
        // the stream that it finds first, so it is one stream for all times.
        System.setOut(new PrintStream(new OutputStream() {
            @Override
            public void write(int each) throws IOException {
                OutputStream now = caught;
                (now == null ? LOG : now).write(each);
            }
        }, true));
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode order = JSON.readTree(line);
            threads.execute(() -> serve(order));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void serve(JsonNode order) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("id", order.get("id").asInt());
        try {
            answer.put("ok", obey(order));
        } catch (Throwable error) {
            answer.put("error", describe(error));
        }
        say(answer);
    }

    /** An answer, or news of a member. */
    static void say(Map<String, Object> said) {
        try {
            String line = JSON.writeValueAsString(said);
            synchronized (ANSWERS) {
                ANSWERS.println(line);
                ANSWERS.flush();
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    static String describe(Throwable error) {
        Throwable cause = error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
        String shown = cause.toString();
        return cause.getCause() == null ? shown : shown + ": " + cause.getCause();
    }

    private static Object obey(JsonNode order) throws Exception {
        String op = order.get("op").asText();
        return switch (op) {
            case "hello" -> AppInfoParser.getVersion();
            case "produce" -> produce(order);
            case "read" -> read(order);
            case "join" -> {
                if (order.has("settings")) {
                    NotedSeat noted = new NotedSeat(settings(order), order);
                    NOTED.put(text(order, "member"), noted);
                    new Thread(noted, text(order, "member")).start();
                    yield null;
                }
                GroupSeat seat = new GroupSeat(settings(order), order);
                SEATS.put(text(order, "member"), seat);
                new Thread(seat, text(order, "member")).start();
                yield null;
            }
            case "member" -> SEATS.get(text(order, "member")).show();
            case "commit" -> SEATS.get(text(order, "member")).commit(text(order, "how"));
            case "leave" -> {
                NotedSeat noted = NOTED.remove(text(order, "member"));
                yield noted == null ? SEATS.remove(text(order, "member")).leave() : noted.leave();
            }
            case "tool" -> tool(order);
            default -> {
                try (Admin admin = Admin.create(settings(order))) {
                    yield ask(admin, op, order);
                }
            }
        };
    }

    static String text(JsonNode order, String name) {
        JsonNode found = order.get(name);
        return found == null || found.isNull() ? null : found.asText();
    }

    private static Properties settings(JsonNode order) {
        Properties config = new Properties();
        config.put("bootstrap.servers", text(order, "servers"));
        JsonNode security = order.get("security");
        if (security != null && !security.isNull()) {
            config.put("security.protocol", text(security, "protocol"));
            if (security.has("ca")) {
                config.put("ssl.truststore.type", "PEM");
                config.put("ssl.truststore.location", text(security, "ca"));
            }
            if (security.has("mechanism")) {
                String mechanism = text(security, "mechanism");
                String login = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
                config.put("sasl.mechanism", mechanism);
                config.put("sasl.jaas.config", "org.apache.kafka.common.security." + login
                    + " required username=\"" + text(security, "username")
                    + "\" password=\"" + text(security, "password") + "\";");
            }
        }
        return config;
    }

    private static Object produce(JsonNode order) throws Exception {
        Properties config = settings(order);
        if (text(order, "codec") != null) {
            config.put("compression.type", text(order, "codec"));
        }
        StringSerializer writer = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, writer, writer)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : order.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get("headers")) {
                    byte[] value = header.get(1).isNull() ? null : header.get(1).asText().getBytes(StandardCharsets.UTF_8);
                    headers.add(new RecordHeader(header.get(0).asText(), value));
                }
                Integer partition = record.get("partition").isNull() ? null : record.get("partition").asInt();
                Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
                sent.add(producer.send(new ProducerRecord<>(text(order, "topic"), partition, timestamp,
                    text(record, "key"), text(record, "value"), headers)));
            }
            List<Object> placed = new ArrayList<>();
            for (Future<RecordMetadata> each : sent) {
                RecordMetadata done = each.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
                placed.add(List.of(done.partition(), done.offset()));
            }
            return placed;
        }
    }

    private static Object read(JsonNode order) {
        Properties config = settings(order);
        config.put("auto.offset.reset", "earliest");
        StringDeserializer reader = new StringDeserializer();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, reader, reader)) {
            List<TopicPartition> places = new ArrayList<>();
            for (int number = 0; number < order.get("partitions").asInt(); number++) {
                places.add(new TopicPartition(text(order, "topic"), number));
            }
            consumer.assign(places);
            List<Object> found = new ArrayList<>();
            while (found.size() < order.get("count").asInt()) {
                if (System.currentTimeMillis() > end) {
                    throw new IllegalStateException("only " + found.size() + " records came");
                }
                consumer.poll(java.time.Duration.ofMillis(100)).forEach(record -> found.add(shown(record)));
            }
            return found;
        }
    }

    private static Map<String, Object> shown(ConsumerRecord<String, String> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8));
            headers.add(pair);
        }
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("partition", record.partition());
        shown.put("offset", record.offset());
        shown.put("key", record.key());
        shown.put("value", record.value());
        shown.put("headers", headers);
        shown.put("timestamp", record.timestamp());
        return shown;
    }

    private static Object ask(Admin admin, String op, JsonNode order) throws Exception {
        String topic = text(order, "topic");
        String group = text(order, "group");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic == null ? "" : topic);
        return switch (op) {
            case "create_topic" -> {
                Map<String, String> configs = new HashMap<>();
                order.get("configs").fields().forEachRemaining(e -> configs.put(e.getKey(), e.getValue().asText()));
                NewTopic wanted = new NewTopic(topic, Optional.of(order.get("partitions").asInt()), Optional.empty());
                yield admin.createTopics(List.of(wanted.configs(configs))).all().get();
            }
            case "delete_topic" -> admin.deleteTopics(List.of(topic)).all().get();
            case "grow_topic" -> admin.createPartitions(
                Map.of(topic, NewPartitions.increaseTo(order.get("count").asInt()))).all().get();
            case "topics" -> admin.listTopics().names().get();
            case "partitions" -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            case "describe_config" -> {
                Map<String, String> found = new HashMap<>();
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
                    .forEach(entry -> found.put(entry.name(), entry.value()));
                yield found;
            }
            case "alter_config" -> {
                ConfigEntry entry = new ConfigEntry(text(order, "key"), text(order, "value"));
                yield admin.incrementalAlterConfigs(
                    Map.of(resource, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
            }
            case "groups" -> admin.listConsumerGroups().all().get().stream().map(each -> each.groupId()).toList();
            case "group" -> {
                ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                yield Map.of("state", found.state().toString(), "members", found.members().size());
            }
            case "delete_group" -> admin.deleteConsumerGroups(List.of(group)).all().get();
            case "offsets" -> {
                List<Object> found = new ArrayList<>();
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach(
                    (place, entry) -> found.add(List.of(place.partition(), entry.offset())));
                yield found;
            }
            case "alter_offsets" -> {
                Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
                order.get("offsets").forEach(pair -> wanted.put(
                    new TopicPartition(topic, pair.get(0).asInt()), new OffsetAndMetadata(pair.get(1).asLong())));
                yield admin.alterConsumerGroupOffsets(group, wanted).all().get();
            }
            case "delete_offsets" -> {
                Set<TopicPartition> places = new java.util.HashSet<>();
                order.get("partitions").forEach(each -> places.add(new TopicPartition(topic, each.asInt())));
                yield admin.deleteConsumerGroupOffsets(group, places).all().get();
            }
            case "delete_records" -> {
                Map<TopicPartition, RecordsToDelete> wanted = new HashMap<>();
                order.get("offsets").forEach(pair -> wanted.put(
                    new TopicPartition(topic, pair.get(0).asInt()), RecordsToDelete.beforeOffset(pair.get(1).asLong())));
                yield admin.deleteRecords(wanted).all().get();
            }
            case "cluster" -> {
                DescribeClusterResult found = admin.describeCluster();
                yield Map.of("id", found.clusterId().get(),
                    "brokers", found.nodes().get().stream().map(node -> node.host() + ":" + node.port()).toList());
            }
            case "log_offsets" -> {
                String at = text(order, "at");
                OffsetSpec spec = at.equals("earliest") ? OffsetSpec.earliest()
                    : at.equals("latest") ? OffsetSpec.latest() : OffsetSpec.forTimestamp(Long.parseLong(at));
                Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
                for (int number = 0; number < order.get("partitions").asInt(); number++) {
                    wanted.put(new TopicPartition(topic, number), spec);
                }
                List<Object> found = new ArrayList<>();
                admin.listOffsets(wanted).all().get().forEach(
                    (place, entry) -> found.add(List.of(place.partition(), entry.offset())));
                yield found;
            }
            default -> throw new IllegalArgumentException("no such order: " + op);
        };
    }

    private static final class Exited extends RuntimeException { }

    /** A command-line tool's main, with its exit, input and output caught; one at a time. */
    private static synchronized Object tool(JsonNode order) throws Exception {
        List<Integer> status = new ArrayList<>(); // the first counts: some tools catch their own exit
        Exit.setExitProcedure((code, message) -> {
            status.add(code);
            throw new Exited();
        });
        Exit.setShutdownHookAdder((name, hook) -> { });
        List<String> args = new ArrayList<>();
        order.get("args").forEach(each -> args.add(each.asText()));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream oldErr = System.err;
        InputStream oldIn = System.in;
        try {
            caught = out;
            System.setErr(new PrintStream(err, true));
            String typed = text(order, "input");
            System.setIn(new ByteArrayInputStream((typed == null ? "" : typed).getBytes(StandardCharsets.UTF_8)));
            Class.forName(text(order, "main")).getMethod("main", String[].class)
                .invoke(null, (Object) args.toArray(new String[0]));
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                throw error;
            }
        } finally {
            caught = null;
            System.setErr(oldErr);
            System.setIn(oldIn);
        }
        return Map.of("status", status.isEmpty() ? 0 : status.get(0), "out", out.toString(), "err", err.toString());
    }

    static List<Integer> numbers(Collection<TopicPartition> places) {
        return places.stream().map(TopicPartition::partition).sorted().toList();
    }
}
