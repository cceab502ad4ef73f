package redial.interop;

import com.google.gson.JsonNull;
import io.grpc.Server;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * Warm-up calls of every type, before the first scenario.
 *
 * <p>Why: the first calls of a Java program load classes for some hundred milliseconds, which would be taken for
 * the library's own delays.
 */
final class WarmUp {
  private static final int ROUNDS = 3;
  private static final int AT_ONCE = 4;
  private static final double GIVE_UP = 10_000;
  /** Both policies for what the server does not know: it answers UNIMPLEMENTED. */
  private static final String CONFIG =
      """
      { "methodConfig": [
        { "name": [{ "service": "warm.Retry" }],
          "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.02s",
                           "backoffMultiplier": 2, "retryableStatusCodes": ["UNIMPLEMENTED"] } },
        { "name": [{ "service": "warm.Hedge" }],
          "hedgingPolicy": { "maxAttempts": 4, "hedgingDelay": "0.005s",
                             "nonFatalStatusCodes": ["UNIMPLEMENTED"] } }],
        "retryThrottling": { "maxTokens": 100, "tokenRatio": 0.1 } }
      """;

  private WarmUp() {}

  static void play() throws IOException {
    Server server = EchoServer.start();
    try {
      Client.Options options = new Client.Options(5, true, 1_000L, 10_000L);
      Client.Scenario scenario =
          new Client.Scenario(
              JsonNull.INSTANCE, "127.0.0.1:" + server.getPort(), CONFIG, options, GIVE_UP, calls());
      for (int round = 0; round < ROUNDS; round++) {
        IntStream.range(0, AT_ONCE).parallel().forEach(i -> Peer.JSON.toJson(Client.play(scenario)));
      }
    } finally {
      server.shutdownNow();
    }
  }

  private static List<Call.Spec> calls() {
    return List.of(
        call("/redial.test.Echo/Unary", "unary", null, null, 0),
        call("/redial.test.Echo/ClientStream", "client-stream", null, null, 5),
        call("/redial.test.Echo/ClientStream", "client-stream", 10.0, null, 30),
        call("/redial.test.Echo/ClientStream", "client-stream", null, 10.0, 30),
        call("/warm.Retry/Get", "unary", 1_000.0, null, 0),
        call("/warm.Hedge/Get", "unary", null, null, 0),
        call("/warm.Hedge/Put", "client-stream", null, null, 5));
  }

  private static Call.Spec call(String method, String kind, Double deadline, Double cancel, double last) {
    List<Call.Message> messages =
        last == 0
            ? List.of(new Call.Message(0, 0))
            : List.of(new Call.Message(0, 0), new Call.Message(last, 0));
    return new Call.Spec(0, method, kind, Map.of("x-redial-call", "0"), deadline, cancel, messages);
  }
}
