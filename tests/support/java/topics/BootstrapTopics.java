import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Adds topics to what a formatted Kafka begins with, so that it serves folders it did not write.
 *
 * Arguments: the metadata folder, the id of the folder with the logs, and for each topic its name,
 * its id, its number of partitions, and its settings as key=value;key=value.
 */
public class BootstrapTopics {
    private static final byte TOPIC = 2;

    public static void main(String[] args) throws Exception {
        BootstrapDirectory folder = new BootstrapDirectory(args[0]);
        Uuid place = Uuid.fromString(args[1]);
        List<ApiMessageAndVersion> records = new ArrayList<>(folder.read().records());
        for (int at = 2; at < args.length; at += 4) {
            Uuid id = Uuid.fromString(args[at + 1]);
            records.add(new ApiMessageAndVersion(
                new TopicRecord().setName(args[at]).setTopicId(id), (short) 0));
            for (String setting : args[at + 3].isEmpty() ? new String[0] : args[at + 3].split(";")) {
                String[] parts = setting.split("=", 2);
                records.add(new ApiMessageAndVersion(new ConfigRecord()
                    .setResourceType(TOPIC).setResourceName(args[at])
                    .setName(parts[0]).setValue(parts[1]), (short) 0));
            }
            for (int number = 0; number < Integer.parseInt(args[at + 2]); number++) {
                records.add(new ApiMessageAndVersion(new PartitionRecord()
                    .setPartitionId(number).setTopicId(id)
                    .setReplicas(List.of(1)).setIsr(List.of(1))
                    .setRemovingReplicas(List.of()).setAddingReplicas(List.of())
                    .setLeader(1).setLeaderEpoch(0).setPartitionEpoch(0)
                    .setDirectories(List.of(place)), (short) 1));
            }
        }
        folder.writeBinaryFile(BootstrapMetadata.fromRecords(records, "topics of another broker"));
    }
}
