import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.concurrent.TimeUnit;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Names of certificates, principals made of them, and waits for quotas, line by line; fields are parted by tabs.
 *
 * name DER                     the name of a subject, in hexadecimal digits
 * rules RULES NAME             the principal that rules make of a name, likewise
 * rate SAMPLES SIZE_MS LIMIT   a new window; bucket ...: new tokens
 * use AMOUNT NOW_MS            records a use
 * wait NOW_MS                  milliseconds until it is within its limit
 */
public class Security {
    private static Rate rate;
    private static TokenBucket bucket;
    private static MetricConfig config;

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(answer(line.split("\t", -1)));
        }
        out.flush();
    }

    private static String answer(String[] fields) {
        switch (fields[0]) {
            case "name":
                return hex(new X500Principal(HexFormat.of().parseHex(fields[1])).getName());
            case "rules":
                return principal(text(fields[1]), text(fields[2]));
            case "rate":
            case "bucket":
                config = new MetricConfig().samples(Integer.parseInt(fields[1]))
                    .timeWindow(Long.parseLong(fields[2]), TimeUnit.MILLISECONDS)
                    .quota(Quota.upperBound(Double.parseDouble(fields[3])));
                rate = fields[0].equals("rate") ? new Rate() : null;
                bucket = new TokenBucket();
                return "ok";
            case "use":
                var now = Long.parseLong(fields[2]);
                (rate == null ? bucket : rate).record(config, Double.parseDouble(fields[1]), now);
                return "ok";
            default:
                return "" + waits(Long.parseLong(fields[1]));
        }
    }

    private static long waits(long now) {
        double limit = config.quota().bound();
        if (rate == null) {
            double tokens = bucket.measure(config, now);
            return tokens >= 0 ? 0 : Math.round(-tokens / limit * 1000);
        }
        double value = rate.measure(config, now);
        return value <= limit ? 0 : Math.round((value - limit) / limit * rate.windowSize(config, now));
    }

    private static String principal(String rules, String name) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(rules);
        } catch (RuntimeException refused) {
            return "refused";
        }
        try {
            return hex(mapper.getName(name));
        } catch (Exception none) {
            return "none";
        }
    }

    private static String hex(String text) {
        return "=" + HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
