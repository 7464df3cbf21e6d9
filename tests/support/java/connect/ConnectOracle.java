import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;

import org.apache.kafka.connect.runtime.distributed.ConnectProtocol;
import org.apache.kafka.connect.runtime.distributed.ExtendedAssignment;
import org.apache.kafka.connect.runtime.distributed.ExtendedWorkerState;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeConnectProtocol;
import org.apache.kafka.connect.util.ConnectorTaskId;

/**
 * What Kafka Connect's own classes write: one question a line in, the bytes in hexadecimal out.
 *
 * "subscription VERSION URL OFFSET" is followed by the current assignment, if the version is not 0: "-" or the words of
 * an assignment. "assignment VERSION ERROR LEADER LEADER-URL OFFSET ASSIGNED REVOKED DELAY" has connectors and tasks as
 * "sink:-1,0;source:1", or "-".
 */
public class ConnectOracle {
    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> words = List.of(line.split(" "));
            short version = Short.parseShort(words.get(1));
            ByteBuffer written = words.get(0).equals("subscription") ? subscription(version, words)
                : assignment(version, words.subList(2, words.size()));
            System.out.println(written == null ? "-" : HexFormat.of().formatHex(written.array()));
        }
    }

    static ByteBuffer subscription(short version, List<String> words) {
        String url = words.get(2);
        long offset = Long.parseLong(words.get(3));
        if (version == 0) return ConnectProtocol.serializeMetadata(new ConnectProtocol.WorkerState(url, offset));
        ExtendedAssignment current = words.get(4).equals("-") ? ExtendedAssignment.empty()
            : extended(version, words.subList(4, words.size()));
        return IncrementalCooperativeConnectProtocol.serializeMetadata(
            new ExtendedWorkerState(url, offset, current), version == 2);
    }

    static ByteBuffer assignment(short version, List<String> words) {
        if (version > 0)
            return IncrementalCooperativeConnectProtocol.serializeAssignment(extended(version, words), version == 2);
        return ConnectProtocol.serializeAssignment(new ConnectProtocol.Assignment(
            Short.parseShort(words.get(0)), words.get(1), words.get(2), Long.parseLong(words.get(3)),
            connectors(words.get(4)), tasks(words.get(4))));
    }

    static ExtendedAssignment extended(short version, List<String> words) {
        return new ExtendedAssignment(
            version, Short.parseShort(words.get(0)), words.get(1), words.get(2), Long.parseLong(words.get(3)),
            connectors(words.get(4)), tasks(words.get(4)), connectors(words.get(5)), tasks(words.get(5)),
            Integer.parseInt(words.get(6)));
    }

    static Collection<String> connectors(String word) {
        Collection<String> found = new ArrayList<>();
        for (ConnectorTaskId one : parts(word)) if (one.task() == ConnectProtocol.CONNECTOR_TASK) found.add(one.connector());
        return found;
    }

    static Collection<ConnectorTaskId> tasks(String word) {
        Collection<ConnectorTaskId> found = parts(word);
        found.removeIf(one -> one.task() == ConnectProtocol.CONNECTOR_TASK);
        return found;
    }

    static Collection<ConnectorTaskId> parts(String word) {
        Collection<ConnectorTaskId> found = new ArrayList<>();
        if (word.equals("-")) return found;
        for (String connector : word.split(";")) {
            String[] pair = connector.split(":");
            for (String task : pair[1].split(",")) found.add(new ConnectorTaskId(pair[0], Integer.parseInt(task)));
        }
        return found;
    }
}
