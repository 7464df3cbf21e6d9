import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;

import javax.security.auth.login.AppConfigurationEntry;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.internals.AutoOffsetResetStrategy;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/**
 * How Kafka reads a consumer's settings, behind lines of text: one question a line in, one answer a
 * line out. Texts are hexadecimal behind an "x", null is "-", and what has no default "!"; an
 * exception is answered with "error" and its class.
 */
public class SettingOracle {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" "));
            } catch (RuntimeException | IOException e) {
                answer = "error " + e.getClass().getSimpleName();
            }
            out.println(answer);
            out.flush();
        }
    }

    static String answer(String[] words) throws IOException {
        Map<String, ConfigDef.ConfigKey> keys = ConsumerConfig.configDef().configKeys();
        switch (words[0]) {
            case "keys":
                return keys.values().stream().map(SettingOracle::shown).collect(Collectors.joining(" "));
            case "parse":
                ConfigDef.ConfigKey key = keys.get(words[1]);
                Object value = ConfigDef.parseType(key.name, text(words[2]), key.type);
                if (key.validator != null) key.validator.ensureValid(key.name, value);
                return value instanceof Password
                    ? hex(((Password) value).value()) : hex(ConfigDef.convertToString(value, key.type));
            case "config":
                Map<String, Object> given = new HashMap<>(pairs(words[2]));
                given.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
                given.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
                ConsumerConfig config = new ConsumerConfig(given);
                return hex(String.valueOf(config.values().get(words[1])));
            case "properties":
                Properties read = new Properties();
                read.load(new ByteArrayInputStream(HEX.parseHex(words[1], 1, words[1].length())));
                Map<String, String> sorted = new TreeMap<>();
                for (String name : read.stringPropertyNames()) sorted.put(name, read.getProperty(name));
                return shown(sorted);
            case "jaas":
                JaasContext context = JaasContext.loadClientContext(
                    Map.of("sasl.jaas.config", new Password(text(words[1]))));
                List<AppConfigurationEntry> entries = context.configurationEntries();
                Map<String, String> options = new TreeMap<>();
                entries.get(0).getOptions().forEach((name, option) -> options.put(name, (String) option));
                return hex(entries.get(0).getLoginModuleName()) + " " + shown(options);
            case "reset":
                Duration duration = AutoOffsetResetStrategy.fromString(text(words[1])).duration().get();
                return duration.getSeconds() + " " + duration.getNano();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    static String shown(ConfigDef.ConfigKey key) {
        String value = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE ? "!"
            : key.defaultValue == null ? "-" : hex(ConfigDef.convertToString(key.defaultValue, key.type));
        return key.name + "," + key.type + "," + value + "," + (key.validator == null ? "-" : hex(key.validator.toString()));
    }

    static String shown(Map<String, String> texts) {
        return texts.isEmpty() ? "-" : texts.entrySet().stream()
            .map(each -> hex(each.getKey()) + "=" + hex(each.getValue())).collect(Collectors.joining(","));
    }

    static Map<String, String> pairs(String word) {
        Map<String, String> found = new HashMap<>();
        if (!word.equals("-"))
            for (String part : word.split(",")) {
                int at = part.indexOf('=');
                found.put(text(part.substring(0, at)), text(part.substring(at + 1)));
            }
        return found;
    }

    static String text(String word) {
        return word.equals("-") ? null : new String(HEX.parseHex(word, 1, word.length()), StandardCharsets.UTF_8);
    }

    static String hex(String text) {
        return "x" + HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
