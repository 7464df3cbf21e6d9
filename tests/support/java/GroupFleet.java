import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Real consumers, each in a thread of its own, told what to do by lines on standard input:
 *
 *   start NAME topics=a,b key=value ...   (topics=~regex for a pattern)
 *   slow NAME MS                          stays outside of poll
 *   slowcommit NAME MS                    the same, but commits every second
 *   subscribe NAME a,b
 *   close NAME                            leaves in good order
 *
 * Tells on standard output what becomes of them: "MILLIS NAME assigned|revoked|lost PARTITIONS".
 */
public final class GroupFleet {
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.trim().split(" ");
            if (words[0].equals("start")) {
                Member member = new Member(words[1], Arrays.copyOfRange(words, 2, words.length));
                MEMBERS.put(words[1], member);
                new Thread(member, words[1]).start();
            } else {
                MEMBERS.get(words[1]).orders.add(words);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void tell(String name, String what, Collection<TopicPartition> about) {
        String shown = about.stream().map(TopicPartition::toString).sorted().collect(Collectors.joining(","));
        System.out.println(System.currentTimeMillis() + " " + name + " " + what + " " + shown);
    }

    private static final class Member implements Runnable, ConsumerRebalanceListener {
        final LinkedBlockingQueue<String[]> orders = new LinkedBlockingQueue<>();
        private final String name;
        private final String topics;
        private final KafkaConsumer<byte[], byte[]> consumer;

        Member(String name, String[] settings) {
            this.name = name;
            Properties config = new Properties();
            config.put("client.id", name);
            for (String setting : settings) {
                String[] pair = setting.split("=", 2);
                config.put(pair[0], pair[1]);
            }
            this.topics = (String) config.remove("topics");
            this.consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        private void subscribe(String wanted) {
            if (wanted.startsWith("~")) {
                consumer.subscribe(Pattern.compile(wanted.substring(1)), this);
            } else {
                consumer.subscribe(Arrays.asList(wanted.split(",")), this);
            }
        }

        @Override
        public void run() {
            try {
                subscribe(topics);
                while (true) {
                    consumer.poll(Duration.ofMillis(100));
                    String[] order = orders.poll();
                    if (order == null) {
                        continue;
                    }
                    switch (order[0]) {
                        case "slow" -> Thread.sleep(Long.parseLong(order[2]));
                        case "slowcommit" -> {
                            long end = System.currentTimeMillis() + Long.parseLong(order[2]);
                            while (System.currentTimeMillis() < end) {
                                Thread.sleep(1_000);
                                try {
                                    consumer.commitSync();
                                } catch (RuntimeException gone) {
                                    tell(name, "uncommitted", java.util.List.of());
                                }
                            }
                        }
                        case "subscribe" -> subscribe(order[2]);
                        case "close" -> {
                            consumer.close();
                            tell(name, "closed", java.util.List.of());
                            return;
                        }
                        default -> throw new IllegalArgumentException(order[0]);
                    }
                }
            } catch (Exception error) {
                System.err.println(name + ": " + error);
                consumer.close();
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell(name, "assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell(name, "revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            tell(name, "lost", partitions);
        }
    }
}
