package redial.interop;

import com.google.gson.JsonElement;
import com.google.gson.reflect.TypeToken;
import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Runs scenarios with a channel of grpc-java.
 *
 * <p>It makes no decisions: requests are passed to the library, and its results are printed.
 */
final class Client {
  private static final long CONNECT_SECONDS = 5;

  record Scenario(
      JsonElement id, String target, String config, Options options, double give_up, List<Call.Spec> calls) {}

  record Options(
      Integer attempts_cap,
      Boolean retries,
      Long per_rpc_buffer_limit_in_bytes,
      Long retry_buffer_size_in_bytes) {}

  private Client() {}

  static void playAll(InputStream input) throws IOException, InterruptedException {
    WarmUp.play();
    List<Thread> plays = new ArrayList<>();
    BufferedReader lines = new BufferedReader(new InputStreamReader(input, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      Scenario scenario = Peer.JSON.fromJson(line, Scenario.class);
      Thread play = new Thread(() -> Peer.printLine(play(scenario)));
      play.start();
      plays.add(play);
    }
    for (Thread play : plays) {
      play.join();
    }
  }

  static Map<String, Object> play(Scenario scenario) {
    Map<String, Object> result = new LinkedHashMap<>();
    result.put("id", scenario.id());
    ManagedChannel channel;
    try {
      channel = channel(scenario);
    } catch (RuntimeException refusal) {
      // What follows the first line is a stack trace.
      result.put("refused", String.valueOf(refusal.getMessage()).lines().findFirst().orElse(""));
      return result;
    }
    try {
      connect(channel);
      Clock clock = new Clock();
      List<CompletableFuture<Call.Result>> calls =
          scenario.calls().stream().map(spec -> Call.make(channel, clock, spec, scenario.give_up())).toList();
      result.put("calls", calls.stream().map(CompletableFuture::join).toList());
      return result;
    } finally {
      channel.shutdownNow();
    }
  }

  private static ManagedChannel channel(Scenario scenario) {
    Map<String, Object> config =
        Peer.JSON.fromJson(scenario.config(), new TypeToken<Map<String, Object>>() {});
    ManagedChannelBuilder<?> builder =
        ManagedChannelBuilder.forTarget(scenario.target())
            .usePlaintext()
            .proxyDetector(address -> null)
            .disableServiceConfigLookUp()
            .defaultServiceConfig(config);
    Options options = scenario.options();
    if (options.attempts_cap() != null) {
      builder.maxRetryAttempts(options.attempts_cap()).maxHedgedAttempts(options.attempts_cap());
    }
    if (options.per_rpc_buffer_limit_in_bytes() != null) {
      builder.perRpcBufferLimit(options.per_rpc_buffer_limit_in_bytes());
    }
    if (options.retry_buffer_size_in_bytes() != null) {
      builder.retryBufferSize(options.retry_buffer_size_in_bytes());
    }
    if (options.retries() != null) {
      builder = options.retries() ? builder.enableRetry() : builder.disableRetry();
    }
    return builder.build();
  }

  private static void connect(ManagedChannel channel) {
    CountDownLatch ready = new CountDownLatch(1);
    follow(channel, ready);
    try {
      // The calls are made whether or not it is ready.
      boolean ignored = ready.await(CONNECT_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException interruption) {
      throw new IllegalStateException(interruption);
    }
  }

  private static void follow(ManagedChannel channel, CountDownLatch ready) {
    ConnectivityState state = channel.getState(true);
    if (state == ConnectivityState.READY || state == ConnectivityState.SHUTDOWN) {
      ready.countDown();
    } else {
      channel.notifyWhenStateChanged(state, () -> follow(channel, ready));
    }
  }
}
