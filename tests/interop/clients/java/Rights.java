import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Decides by Apache Kafka's StandardAuthorizer, one line in and one line out; fields are parted by tabs.
 *
 * new SUPER_USERS ALLOW          a new authorizer
 * add NUMBER KIND NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
 * remove NUMBER
 * decide PRINCIPAL HOST OPERATION KIND NAME     answers with the rule
 * any PRINCIPAL HOST OPERATION KIND             answers with ALLOWED or DENIED
 */
public class Rights {
    private static StandardAuthorizer authorizer;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            out.println(answer(line.split("\t", -1)));
        }
    }

    private static String answer(String[] f) throws Exception {
        switch (f[0]) {
            case "new":
                authorizer = new StandardAuthorizer();
                authorizer.configure(Map.of("super.users", f[1], "allow.everyone.if.no.acl.found", f[2], "node.id", "1"));
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                authorizer.completeInitialLoad();
                return "ok";
            case "add":
                authorizer.addAcl(id(f[1]), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(f[2])), f[3], PatternType.fromCode(Byte.parseByte(f[4])),
                    f[5], f[6], AclOperation.fromCode(Byte.parseByte(f[7])), AclPermissionType.fromCode(Byte.parseByte(f[8]))));
                return "ok";
            case "remove":
                authorizer.removeAcl(id(f[1]));
                return "ok";
            case "decide":
                return rule(f);
            case "any":
                return authorizer.authorizeByResourceType(
                    context(f[1], f[2]), AclOperation.fromCode(Byte.parseByte(f[3])),
                    ResourceType.fromCode(Byte.parseByte(f[4]))).name();
            default:
                return "unknown";
        }
    }

    private static Uuid id(String number) {
        return new Uuid(7, Long.parseLong(number));
    }

    private static String rule(String[] f) throws Exception {
        AuthorizableRequestContext context = context(f[1], f[2]);
        Action action = new Action(
            AclOperation.fromCode(Byte.parseByte(f[3])),
            new ResourcePattern(ResourceType.fromCode(Byte.parseByte(f[4])), f[5], PatternType.LITERAL), 1, false, false);
        Field field = StandardAuthorizer.class.getDeclaredField("data");
        field.setAccessible(true);
        Object data = field.get(authorizer);
        Field users = data.getClass().getDeclaredField("superUsers");
        users.setAccessible(true);
        if (((Set<?>) users.get(data)).contains(context.principal().toString())) {
            return "SuperUser";
        }
        Method find = data.getClass().getDeclaredMethod("findAclRule", Set.class, String.class, Action.class);
        find.setAccessible(true);
        Set<KafkaPrincipal> principals = Set.of(context.principal(), new KafkaPrincipal("User", "*"));
        return find.invoke(data, principals, context.clientAddress().getHostAddress(), action).toString();
    }

    private static AuthorizableRequestContext context(String principal, String host) throws Exception {
        int colon = principal.indexOf(':');
        KafkaPrincipal who = new KafkaPrincipal(principal.substring(0, colon), principal.substring(colon + 1));
        InetAddress address = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            @Override
            public String listenerName() {
                return "PLAINTEXT";
            }

            @Override
            public SecurityProtocol securityProtocol() {
                return SecurityProtocol.PLAINTEXT;
            }

            @Override
            public KafkaPrincipal principal() {
                return who;
            }

            @Override
            public InetAddress clientAddress() {
                return address;
            }

            @Override
            public int requestType() {
                return 3;
            }

            @Override
            public int requestVersion() {
                return 1;
            }

            @Override
            public String clientId() {
                return "rights";
            }

            @Override
            public int correlationId() {
                return 0;
            }
        };
    }
}
