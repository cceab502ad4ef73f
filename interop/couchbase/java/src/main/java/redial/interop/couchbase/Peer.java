package redial.interop.couchbase;

import com.couchbase.client.core.env.PasswordAuthenticator;
import com.couchbase.client.core.error.AmbiguousTimeoutException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.RequestCanceledException;
import com.couchbase.client.core.error.ServerOutOfMemoryException;
import com.couchbase.client.core.error.UnambiguousTimeoutException;
import com.couchbase.client.core.msg.Request;
import com.couchbase.client.core.msg.Response;
import com.couchbase.client.core.retry.BestEffortRetryStrategy;
import com.couchbase.client.core.retry.RetryAction;
import com.couchbase.client.core.retry.RetryReason;
import com.couchbase.client.core.retry.RetryStrategy;
import com.couchbase.client.core.service.ServiceType;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.diagnostics.WaitUntilReadyOptions;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.UpsertOptions;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.logging.Level;
import java.util.logging.Logger;

/** The Java SDK in the interop tests: {@code version} or {@code client HOST:PORT}, as interop/README.md says. */
final class Peer {
  static final Gson JSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

  private Peer() {}

  /** A question to the strategy: the reason, and its answer in ms; null is no retry. */
  record Asked(String reason, Double delay_ms) {}

  record Operation(String operation, String key, double timeout_ms) {}

  record Result(String outcome, double elapsed_ms, List<Asked> asked) {}

  /** The library's best effort, which notes what it was asked. */
  static final class Noting implements RetryStrategy {
    private List<Asked> asked = new ArrayList<>();

    @Override
    public CompletableFuture<RetryAction> shouldRetry(Request<? extends Response> request, RetryReason reason) {
      return BestEffortRetryStrategy.INSTANCE.shouldRetry(request, reason).thenApply(action -> {
        note(new Asked(reason.name(), action.duration().map(delay -> delay.toNanos() / 1e6).orElse(null)));
        return action;
      });
    }

    private synchronized void note(Asked question) {
      asked.add(question);
    }

    synchronized List<Asked> take() {
      List<Asked> taken = asked;
      asked = new ArrayList<>();
      return taken;
    }
  }

  public static void main(String[] arguments) throws IOException {
    Logger.getLogger("com.couchbase").setLevel(Level.SEVERE);
    String mode = Arrays.stream(arguments).findFirst().orElse("");
    if (mode.equals("version") && arguments.length == 1) {
      printLine(Map.of(
          "library", "com.couchbase.client:java-client",
          "version", Cluster.class.getPackage().getImplementationVersion(),
          "runtime", "Java " + System.getProperty("java.version")));
    } else if (mode.equals("client") && arguments.length == 2) {
      serve(arguments[1]);
    } else {
      System.err.println("expected `version` or `client HOST:PORT`");
      System.exit(1);
    }
  }

  /** Prints one line of the protocol. */
  static void printLine(Object line) {
    System.out.println(JSON.toJson(line));
    System.out.flush();
  }

  private static void serve(String address) throws IOException {
    Noting strategy = new Noting();
    // The mock has PLAIN or a SCRAM that it does not check.
    PasswordAuthenticator user =
        PasswordAuthenticator.builder("secure", "secret").enablePlainSaslMechanism().build();
    ClusterOptions options = ClusterOptions.clusterOptions(user).environment(environment -> environment
        .retryStrategy(strategy)
        // Injected failures hit polls of the configuration too, so it is polled rarely.
        .ioConfig(io -> io.numKvConnections(1).configPollInterval(Duration.ofMinutes(2))));
    Cluster cluster = Cluster.connect("couchbase://" + address, options);
    var bucket = cluster.bucket("secure");
    bucket.waitUntilReady(
        Duration.ofSeconds(60),
        WaitUntilReadyOptions.waitUntilReadyOptions().serviceTypes(Set.of(ServiceType.KV)));
    strategy.take();
    printLine(Map.of("ready", true));
    Collection documents = bucket.defaultCollection();
    var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      Operation operation = JSON.fromJson(line, Operation.class);
      long started = System.nanoTime();
      String outcome = execute(documents, operation);
      double elapsed = (System.nanoTime() - started) / 1e6;
      printLine(new Result(outcome, elapsed, strategy.take()));
    }
    System.exit(0);
  }

  private static String execute(Collection documents, Operation operation) {
    Duration timeout = Duration.ofNanos((long) (operation.timeout_ms() * 1e6));
    try {
      switch (operation.operation()) {
        case "get" -> documents.get(operation.key(), GetOptions.getOptions().timeout(timeout));
        case "upsert" -> documents.upsert(operation.key(), 1, UpsertOptions.upsertOptions().timeout(timeout));
        default -> throw new IllegalArgumentException("there is no operation " + operation.operation());
      }
      return "ok";
    } catch (AmbiguousTimeoutException error) {
      return "ambiguous timeout";
    } catch (UnambiguousTimeoutException error) {
      return "unambiguous timeout";
    } catch (ServerOutOfMemoryException error) {
      return "out of memory";
    } catch (RequestCanceledException error) {
      return "connection lost";
    } catch (CouchbaseException error) {
      return error.getClass().getSimpleName() + ": " + error.getMessage();
    }
  }
}
