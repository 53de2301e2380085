import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes.ByteArraySerde;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** A Kafka Streams application with a streams group (KIP-1071) that reads a topic, until its standard input ends. */
class Forward {
    /** Arguments: bootstrap servers, topic, application id, folder. */
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[1]).foreach((key, value) -> { });
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[2]);
        settings.put("state.dir", args[3]);
        settings.put("group.protocol", "streams");
        settings.put("default.key.serde", ByteArraySerde.class);
        settings.put("default.value.serde", ByteArraySerde.class);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            System.in.read();
        }
    }
}
